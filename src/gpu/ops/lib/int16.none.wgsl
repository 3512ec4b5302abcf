// Float activations need no integers.
