"""The batch optimiser on landmarks: all rows of a sample in every step."""

from s3vm.solvers.batch.batch import Batch as Batch
