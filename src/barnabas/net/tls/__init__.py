"""TLS: what the settings say (`options`), keys and certificates (`stores`), contexts, and the layer on a connection."""
