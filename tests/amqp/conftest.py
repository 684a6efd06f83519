"""What every test of the wire format may rely on."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)  # the plain kernel takes its time on a busy machine
settings.load_profile("unhurried")
