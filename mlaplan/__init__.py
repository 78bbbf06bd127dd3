"""mlaplan: plan the deployment of Multi-head Latent Attention models on any accelerator."""

__version__ = "0.1.0"
