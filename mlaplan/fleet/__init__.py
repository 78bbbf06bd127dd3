"""More than one deployment: its cache as a pool, tiers behind it, prefill and decode apart, sizes for a load."""
