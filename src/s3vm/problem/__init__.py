"""What is minimised: the objective of the paper, the graph of neighbours, and projections of the rows."""

from s3vm.problem.problem import Problem, SupervisedSolution, first_equal

__all__ = ["Problem", "SupervisedSolution", "first_equal"]
