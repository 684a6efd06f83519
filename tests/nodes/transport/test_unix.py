"""Links between processes of one machine are in a directory closed to other users."""

from pathlib import Path

import pytest
from tests.nodes.homes import config_of, in_loop, started

from jumpmq.broker import BrokerError


@in_loop
@pytest.mark.parametrize("home", [1, 2])
async def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path, home: int) -> None:
    (tmp_path / "links").mkdir(mode=0o755)
    with pytest.raises(BrokerError, match=r"links to other homes cannot be made: .* only this user may enter"):
        await started(config_of(home, 2, tmp_path))


@in_loop
async def test_a_symbolic_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "links").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BrokerError, match="links to other homes cannot be made"):
        await started(config_of(1, 2, tmp_path))
