"""Pools of notebooks: processes that run functions in step, and what passes between them."""
