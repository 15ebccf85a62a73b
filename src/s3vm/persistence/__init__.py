"""A model on its way to where it serves: files, smaller models, other formats."""
