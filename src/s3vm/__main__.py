"""`python -m s3vm` is `s3vm`."""

from s3vm.cli import main

main()
