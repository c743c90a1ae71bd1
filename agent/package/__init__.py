"""Layer packages: a model in parts that can be fetched, verified and put together stage by stage."""
