import numba
import numpy as np
import pytest
from scipy import stats

import literal
from s3vm import philox
from s3vm.philox import Purpose

# From the known-answer file that comes with Random123: counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter, key, result):
    assert literal.philox4x32(counter, key) == result
    scalars = [np.uint64(word) for word in (*counter, *key)]
    assert tuple(map(int, philox.philox4x32(*scalars))) == result
    arrays = [np.full(3, word, dtype=np.uint64) for word in (*counter, *key)]
    assert [column.tolist() for column in philox.philox4x32(*arrays)] == [[word] * 3 for word in result]
    assert tuple(map(int, numba.njit(philox.philox4x32)(*scalars))) == result


def test_numba_and_numpy_agree_on_a_million_counters():
    n = 10**6
    counter = np.random.default_rng(0).integers(0, 2**32, size=(4, n), dtype=np.uint64)
    compiled = numba.njit(philox.philox4x32)

    @numba.njit
    def fill(counter, k0, k1, result):
        for i in range(counter.shape[1]):
            result[0, i], result[1, i], result[2, i], result[3, i] = compiled(
                counter[0, i], counter[1, i], counter[2, i], counter[3, i], k0, k1
            )

    result = np.empty_like(counter)
    fill(counter, np.uint64(123), np.uint64(456), result)
    np.testing.assert_array_equal(result, philox.philox4x32(*counter, np.uint64(123), np.uint64(456)))
    for i in range(0, n, n // 50):
        assert tuple(map(int, result[:, i])) == literal.philox4x32(tuple(map(int, counter[:, i])), (123, 456))


def test_every_number_is_its_address():
    seed = 2**40 + 17
    block = philox.words(seed, Purpose.PHASE, 5, 7, 11)
    for row, column in [(0, 0), (3, 4), (6, 10)]:
        assert block[row, column] == literal.word(seed, "phase", 5, row, column)
    np.testing.assert_array_equal(philox.words(seed, Purpose.PHASE, 5, 3, 2), block[:3, :2])
    normals = philox.normals(seed, Purpose.FREQUENCY, 2, 4, 5)
    assert normals[3, 4] == pytest.approx(literal.normal(seed, "frequency", 2, 3, 4), rel=1e-14)
    np.testing.assert_array_equal(philox.normals(seed, Purpose.FREQUENCY, 2, 2, 3), normals[:2, :3])
    assert philox.indices(seed, Purpose.LABELED, range(9, 11), 30, 1000).tolist() == [
        [literal.index(seed, "labeled", block, row, 1000) for row in range(30)] for block in (9, 10)
    ]


def test_streams_blocks_and_seeds_differ():
    draws = [
        philox.words(seed, stream, block, 4, 4).tobytes()
        for seed in (0, 1, 2**32)
        for stream in Purpose
        for block in (0, 1)
    ]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize(
    ("numbers", "law"),
    [
        (philox.uniforms(1, Purpose.PHASE, 0, 200, 100), stats.uniform()),
        (philox.normals(1, Purpose.FREQUENCY, 0, 200, 100), stats.norm()),
        (philox.cauchy(1, Purpose.FREQUENCY, 0, 200, 100), stats.cauchy()),
        (philox.students(1, Purpose.FREQUENCY, 0, 20000, 1, degrees=3), stats.t(3)),
        (philox.indices(1, Purpose.LABELED, range(1), 20000, 2**31) / 2**31, stats.uniform()),
    ],
    ids=["uniform", "normal", "cauchy", "student", "index"],
)
def test_laws(numbers, law):
    assert stats.kstest(numbers.ravel(), law.cdf).pvalue > 1e-3


def test_a_student_row_shares_one_scale():
    rows = philox.students(3, Purpose.FREQUENCY, 0, 5, 4, degrees=5)
    ratio = rows / philox.normals(3, Purpose.FREQUENCY, 0, 5, 4)
    np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones(4))


def test_signs_are_fair():
    signs = philox.signs(0, Purpose.FREQUENCY, 0, 100, 100)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(signs.mean()) < 0.04


def test_indices_reach_both_ends_and_refuse_nothing_to_draw_from():
    assert set(philox.indices(0, Purpose.LABELED, range(1), 200, 3)[0]) == {0, 1, 2}
    for n in (0, 2**32):
        with pytest.raises(ValueError, match="rows"):
            philox.indices(0, Purpose.LABELED, range(1), 1, n)
