import torch

from edgekit_arrcoc.counter_rng import Chance, scramble


def test_the_numbers_are_these_everywhere() -> None:
    drawn = Chance(torch.tensor([0, 1, 2**32 - 1])).bits(2)
    assert drawn.tolist() == [[1214323176, 1098322310], [1208539031, 503857837], [1954961114, 2137202343]]


def test_scrambling_loses_nothing() -> None:
    start = 2**32 - 2**18
    scrambled = scramble(torch.arange(start, 2**32))
    assert len(torch.unique(scrambled)) == 2**18
    assert int(scrambled.min()) >= 0
    assert int(scrambled.max()) < 2**32


def test_draws_are_even_and_in_range() -> None:
    drawn = Chance(torch.arange(64)).between(3, 12, 500)
    counts = torch.bincount(drawn.flatten(), minlength=13)
    assert counts[:3].sum() == 0
    expected = drawn.numel() / 10
    # Five deviations of a binomial count.
    assert (counts[3:] - expected).abs().max() < 5 * expected**0.5


def test_neighbouring_seeds_streams_and_places_are_unrelated() -> None:
    first, second = (Chance(torch.arange(400)) for _ in range(2))
    second.bits(1)
    one, other = first.bits(400).double(), second.bits(400).double()
    for left, right in ((one, other), (one[1:], one[:-1]), (one[:, 1:], one[:, :-1])):
        correlation = torch.corrcoef(torch.stack([left.flatten(), right.flatten()]))[0, 1]
        assert abs(float(correlation)) < 0.015


def test_a_row_of_a_branch_does_not_depend_on_the_others() -> None:
    all_rows = Chance(torch.arange(6)).branch(torch.arange(6)).bits(5)
    some = Chance(torch.arange(6)).branch(torch.tensor([4, 1])).bits(5)
    assert torch.equal(all_rows[[4, 1]], some)
    parent = Chance(torch.arange(6))
    parent.branch(torch.arange(6))
    assert not torch.equal(parent.bits(5), all_rows)
