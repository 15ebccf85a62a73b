"""NTS3VM, Newton steps in the primal."""
