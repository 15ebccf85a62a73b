"""SIMD lanes for Numba: a value type that holds one LLVM vector, and the few operations the kernels need.

Why not leave it to the auto-vectoriser: LLVM vectorises innermost loops only, so a plain Numba product must store and
reload its partial sums at every few coordinates. With explicit lanes the sums of a whole tile stay in registers, as in
a BLAS micro-kernel, and the cosine is applied to them before they ever reach memory.
"""

from math import factorial, pi

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, models, register_model


# Twice the register width, so that six vectors make the twelve independent sums that hide the latency of an FMA.
# LLVM splits them over whatever registers the processor has: a wrong guess costs speed, never correctness.
def _has_wide_registers():
    if config.CPU_FEATURES is not None:
        return "+avx512f" in config.CPU_FEATURES
    try:
        return bool(binding.get_host_cpu_features().get("avx512f"))
    except RuntimeError:  # LLVM cannot tell on some processors
        return False


_WIDE = _has_wide_registers()
LANES = {types.float32: 32 if _WIDE else 16, types.float64: 16 if _WIDE else 8}


class Lanes(types.Type):
    """Numba type of a vector of `LANES[dtype]` numbers."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        scalar = ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(scalar, LANES[kind.dtype]))


def _splat(builder, scalar, vector):
    seed = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(seed, ir.Constant(vector, ir.Undefined), mask)


def _element(context, builder, kind, array, offset):
    """Pointer to the element at a flat offset: no wrap-around, no bounds, the caller owns both."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [offset])


@intrinsic
def load(typingctx, array, offset):
    """The lanes that start at a flat offset of a C-contiguous array."""

    def codegen(context, builder, signature, args):
        pointer = _element(context, builder, signature.args[0], args[0], args[1])
        vector = context.get_value_type(signature.return_type)
        value = builder.load(builder.bitcast(pointer, vector.as_pointer()))
        value.align = array.dtype.bitwidth // 8
        return value

    return Lanes(array.dtype)(array, types.intp), codegen


@intrinsic
def store(typingctx, array, offset, value):
    """Write the lanes at a flat offset of a C-contiguous array."""

    def codegen(context, builder, signature, args):
        pointer = _element(context, builder, signature.args[0], args[0], args[1])
        written = builder.store(args[2], builder.bitcast(pointer, args[2].type.as_pointer()))
        written.align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def add_wide(typingctx, array, offset, value):
    """array[offset:offset + lanes] += value, the array in float64: where float32 sums are flushed."""

    def codegen(context, builder, signature, args):
        pointer = _element(context, builder, signature.args[0], args[0], args[1])
        wide = ir.VectorType(ir.DoubleType(), args[2].type.count)
        pointer = builder.bitcast(pointer, wide.as_pointer())
        old = builder.load(pointer)
        old.align = 8
        value = args[2] if args[2].type == wide else builder.fpext(args[2], wide)
        written = builder.store(builder.fadd(old, value), pointer)
        written.align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def spread(typingctx, array, offset):
    """The one element at a flat offset, in every lane."""

    def codegen(context, builder, signature, args):
        scalar = builder.load(_element(context, builder, signature.args[0], args[0], args[1]))
        return _splat(builder, scalar, context.get_value_type(signature.return_type))

    return Lanes(array.dtype)(array, types.intp), codegen


@intrinsic
def constant(typingctx, like, value):
    """A number in every lane, of the kind of the elements of an array or of other lanes."""

    def codegen(context, builder, signature, args):
        scalar = context.cast(builder, args[1], signature.args[1], like.dtype)
        return _splat(builder, scalar, context.get_value_type(signature.return_type))

    return Lanes(like.dtype)(like, value), codegen


def _operation(name, arity, emit):
    """An intrinsic on lanes from a function (builder, *operands) that emits its instructions."""

    def build(kind):
        def codegen(context, builder, signature, args):
            return emit(context, builder, *args)

        return kind(*[kind] * arity), codegen

    # Numba reads the number of operands off the signature.
    def one(typingctx, a):
        return build(a)

    def two(typingctx, a, b):
        return build(a)

    def three(typingctx, a, b, c):
        return build(a)

    typer = (one, two, three)[arity - 1]
    typer.__name__ = typer.__qualname__ = name
    return intrinsic(typer)


def _call(name):
    """Emitter of an LLVM intrinsic that takes and gives lanes."""

    def emit(context, builder, *operands):
        vector = operands[0].type
        scalar = "f32" if isinstance(vector.element, ir.FloatType) else "f64"
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * len(operands)), f"llvm.{name}.v{vector.count}{scalar}"
        )
        return builder.call(function, operands)

    return emit


def _monic(coefficients):
    """Emitter of a polynomial over its highest coefficient; `coefficients` has one list, lowest first, for each type.

    The first step of Horner's rule is then an addition, which does not wait for the units that multiply.
    """

    def emit(context, builder, u):
        numbers = coefficients[types.float32 if isinstance(u.type.element, ir.FloatType) else types.float64]
        *vector, _ = [ir.Constant(u.type, [c / numbers[-1]] * u.type.count) for c in numbers]
        value = builder.fadd(u, vector[-1])
        for c in vector[-2::-1]:
            value = _call("fmuladd")(context, builder, value, u, c)
        return value

    return emit


def _taylor(first, terms):
    return [(-1) ** k * (2 * pi) ** (2 * k + first) / factorial(2 * k + first) for k in range(terms)]


add = _operation("add", 2, lambda context, builder, a, b: builder.fadd(a, b))
subtract = _operation("subtract", 2, lambda context, builder, a, b: builder.fsub(a, b))
multiply = _operation("multiply", 2, lambda context, builder, a, b: builder.fmul(a, b))
fma = _operation("fma", 3, _call("fmuladd"))  # a * b + c
magnitude = _operation("magnitude", 1, _call("fabs"))
with_sign = _operation("with_sign", 2, _call("copysign"))
nearest = _operation("nearest", 1, _call("rint"))

# On a quarter turn either side of zero, with u = t**2: sin(2 pi t) / t and cos(2 pi t). In float32 the minimax
# polynomials (error 5.9e-7 and 4.7e-8); in float64 the Taylor series to 1e-17.
SINE = {types.float32: [6.28316404, -41.33714244, 81.3407703, -70.99344053], types.float64: _taylor(1, 12)}
COSINE = {
    types.float32: [0.9999999534666258, -19.73917143467984, 64.93459062497077, -85.24033027625654, 56.24238009286235],
    types.float64: _taylor(0, 12),
}
sine_over_turn = _operation("sine_over_turn", 1, _monic(SINE))  # over SINE[dtype][-1]
cosine_of_turn = _operation("cosine_of_turn", 1, _monic(COSINE))  # over COSINE[dtype][-1]


@intrinsic
def lane_count(typingctx, like):
    """How many lanes hold this kind of number: known to the compiler, so that offsets fold into addresses."""

    def codegen(context, builder, signature, args):
        return ir.Constant(context.get_value_type(types.intp), LANES[like.dtype])

    return types.intp(like), codegen


@intrinsic
def total(typingctx, value):
    """Sum of the lanes, in a fixed tree order."""

    def codegen(context, builder, signature, args):
        vector = args[0]
        while vector.type.count > 1:
            half = vector.type.count // 2
            index = ir.VectorType(ir.IntType(32), half)
            low, high = (
                builder.shuffle_vector(vector, vector, ir.Constant(index, list(range(start, start + half))))
                for start in (0, half)
            )
            vector = builder.fadd(low, high)
        return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))

    return value.dtype(value), codegen
