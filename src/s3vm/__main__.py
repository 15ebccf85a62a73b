"""`python -m s3vm` runs the command line."""

from s3vm.cli import main

main()
