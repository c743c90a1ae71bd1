"""Turn the manifests (families, pin, batteries, runners) into plans and GitHub Actions job matrices.

The package is pure: it reads the manifest folder and nothing else. Network, engine, clock and environment stay outside;
only `matrixgen.cli` looks at the environment.
"""

__version__ = "0.1.0"
