"""The former place of `jumpmq.testing`."""

from jumpmq.testing import *  # noqa: F403
