"""How hypothesis runs here: a slow machine is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile("records", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("records")
