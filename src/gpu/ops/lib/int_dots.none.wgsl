// Float activations need no integer dot product.
