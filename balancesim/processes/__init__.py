"""The SimPy world: requests arrive, prompts go up, epochs decide, lanes share the GPU, answers come down."""
