"""Models of the Hugging Face libraries: transformers, timm, and folders for transformers.js and optimum."""
