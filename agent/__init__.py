"""skippy-agent: runs on the runner, proves what was planned, and leaves a receipt."""

__version__ = "0.1.0"
