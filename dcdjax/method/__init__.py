"""Define the decomposition: update rule, objective, priors and divergences. Start with `decomposition`."""
