"""The data plane: partitions, and one Produce or Fetch on its way."""
