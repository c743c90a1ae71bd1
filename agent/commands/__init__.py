"""The commands of skippy-agent, one module each: options in, exit code out."""
