"""The paper's Algorithms 1 and 2 as literal loops over rows and features, in Python's float64.

Nothing here uses the package: the random numbers, the feature laws, the losses and the loops are written out again, as
slowly and as plainly as can be.
"""

import math
from functools import cache

STREAM = {"frequency": 0, "phase": 1, "scale": 2, "labeled": 3, "unlabeled": 4, "reference": 5}


def philox4x32(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 % 2**32, (p0 >> 32) ^ c3 ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def word(seed, stream, block, row, column):
    lanes = philox4x32((column // 4, row, block, STREAM[stream]), (seed % 2**32, seed >> 32))
    return lanes[column % 4]


def uniform(*address):
    return (word(*address) + 0.5) / 2**32


def normal(seed, stream, block, row, column):
    even = column - column % 2
    radius = math.sqrt(-2 * math.log(uniform(seed, stream, block, row, even)))
    angle = 2 * math.pi * uniform(seed, stream, block, row, even + 1)
    return radius * (math.cos(angle) if column % 2 == 0 else math.sin(angle))


def index(seed, stream, block, row, n):
    u64 = word(seed, stream, block, row, 0) * 2**32 + word(seed, stream, block, row, 1)
    return u64 * n // 2**64


@cache
def frequency(kernel, seed, block, j, d):
    """omega_j and b_j of a block: the law of the kernel's random features. `kernel` is (name, gamma, ...)."""
    name, gamma = kernel[:2]
    if name in ("rbf", "rbf pairs"):
        omega = [math.sqrt(2 * gamma) * normal(seed, "frequency", block, j, c) for c in range(d)]
    elif name == "matern":
        degrees = round(2 * kernel[2])
        chi2 = sum(normal(seed, "scale", block, j, c) ** 2 for c in range(degrees))
        student = math.sqrt(degrees / chi2)
        omega = [math.sqrt(2 * gamma) * student * normal(seed, "frequency", block, j, c) for c in range(d)]
    elif name == "laplacian":
        omega = [gamma * math.tan(math.pi * (uniform(seed, "frequency", block, j, c) - 0.5)) for c in range(d)]
    return [2 * math.pi * short(w / (2 * math.pi)) for w in omega], 2 * math.pi * uniform(seed, "phase", block, j, 0)


def short(w):
    """The nearest number of 11 bits."""
    mantissa, exponent = math.frexp(w)
    return math.ldexp(round(mantissa * 2**11), exponent - 11)


@cache
def signs(seed, block, row, n):
    return [1 - 2 * (word(seed, "frequency", block, row, c) >> 31) for c in range(n)]


def feature(kernel, seed, block, j, x, m):
    """phi_j of a block at x, divided by sqrt(m)."""
    d = len(x)
    if kernel[0] == "poly":
        gamma, degree, coef0 = kernel[1:]
        product = 1.0
        for q in range(degree):
            sign = signs(seed, block, j * degree + q, d + 1)
            product *= math.sqrt(gamma) * sum(s * v for s, v in zip(sign, x)) + math.sqrt(coef0) * sign[d]
        return product / math.sqrt(m)
    if kernel[0] == "rbf pairs":
        omega, _ = frequency(kernel, seed, block, j % (m // 2), d)
        wave = math.cos if j < m // 2 else math.sin
        return math.sqrt(2 / m) * wave(sum(w * v for w, v in zip(omega, x)))
    omega, b = frequency(kernel, seed, block, j, d)
    return math.sqrt(2 / m) * math.cos(sum(w * v for w, v in zip(omega, x)) + b)


def hinge(r, y):
    return -y if y * r < 1 else 0.0


def squared_hinge(r, y):
    return -y * max(0.0, 1 - y * r)


def sign(r):
    return (r > 0) - (r < 0)


UNLABELED = {
    "hat": lambda r: -sign(r) if abs(r) < 1 else 0.0,
    "squared_hat": lambda r: sign(r) * (abs(r) - 1) if abs(r) < 1 else 0.0,
    "ramp": lambda r: -sign(r) if 0.3 < abs(r) < 1 else 0.0,
    "exp": lambda r: -6 * r * math.exp(-3 * r * r),
}


def predict(x, alphas, kernel, seed, m):
    """Algorithm 2."""
    f = 0.0
    for i, alpha in enumerate(alphas):
        for j in range(m):
            f += alpha[j] * feature(kernel, seed, i, j, x, m)
    return f


def train(labeled, unlabeled, *, T, m, batch, gamma, C, C_star, kernel, loss, seed, draw_labeled, slope=hinge):
    """Algorithm 1 with mini-batches: the coefficients, a list of m for each iteration.

    `labeled` is a list of (x, y). Unless they are drawn all the same, a batch that could hold all of them is all.
    """
    alphas = []
    for i in range(T):
        if len(labeled) <= batch and not draw_labeled:
            batch_l = labeled
        else:
            batch_l = [labeled[index(seed, "labeled", i, b, len(labeled))] for b in range(batch)]
        batch_u = [unlabeled[index(seed, "unlabeled", i, b, len(unlabeled))] for b in range(batch)]
        f_l = [predict(x, alphas, kernel, seed, m) for x, _ in batch_l]
        f_u = [predict(x, alphas, kernel, seed, m) for x in batch_u]
        alpha = []
        for j in range(m):
            labeled_part = sum(
                slope(f, y) * feature(kernel, seed, i, j, x, m) for f, (x, y) in zip(f_l, batch_l)
            ) / len(batch_l)
            unlabeled_part = sum(
                UNLABELED[loss](f) * feature(kernel, seed, i, j, x, m) for f, x in zip(f_u, batch_u)
            ) / len(batch_u)
            alpha.append(-gamma(i) * (C * labeled_part + C_star * unlabeled_part))
        alphas = [[(1 - gamma(i)) * a for a in older] for older in alphas]
        alphas.append(alpha)
    return alphas
