"""The contract beyond single operators: what a compiled program keeps of the program as eager PyTorch runs it.

A clause is cited as ``contract.mutation.C1``. ``page`` is docs/conformance/contract.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap

CHAPTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "mutation": (
        "Mutation of arguments",
        (
            "An argument that the program does not write to holds after the call, bit for bit, what it held before.",
            "A write of the program to an argument is seen by the caller, in the same memory.",
            "A result computed before a write does not see it; one computed after it does.",
            "A write through a view is seen in the view's base, and the other way round.",
            "A write touches the elements of the tensor that is written, and nothing between, before or after them.",
            "Where two arguments share memory, a write through one is seen through the other.",
            "A change of an argument's sizes or strides (``t_``, ``unsqueeze_``) is seen by the caller.",
        ),
    ),
    "views": (
        "Views",
        (
            "A result that is a view of an argument shares its memory: a write to one is seen in the other.",
            "A view of a view has the elements, sizes, strides and offset that eager PyTorch gives it.",
            "A result that eager PyTorch copies is a copy: a write to it does not reach the argument.",
        ),
    ),
    "aliases": (
        "Results that share memory",
        (
            "Results share memory with each other exactly where they do in eager PyTorch.",
            "A result that is an argument is that very tensor.",
            "A result returned twice is one tensor.",
            "Results share memory with arguments exactly where they do in eager PyTorch.",
        ),
    ),
    "layouts": (
        "Layouts",
        (
            "A result has the strides that eager PyTorch gives it, along dimensions of more than one element.",
            "Arguments of any strides and offset are read right: transposed, expanded, with gaps, not aligned.",
            "Incoming gradients of any strides are read right, expanded ones included.",
            "Results have the shape, dtype and device that eager PyTorch gives them.",
        ),
    ),
    "gradients": (
        "Gradients",
        (
            "Each argument that requires a gradient gets the one that eager PyTorch computes.",
            "An argument without influence on any result has the gradient None.",
            "An argument used several times gets the sum of its gradients.",
            "``backward`` adds to a gradient that is there already.",
            "A result requires a gradient exactly where it does in eager PyTorch.",
            "A result that the differentiated value does not depend on counts as one with a gradient of zeros.",
            "``detach`` and regions without gradients stop gradients.",
            "With ``retain_graph`` a second backward pass gives what the first one gave.",
        ),
    ),
    "random": (
        "Random numbers",
        (
            "With the same seed a program draws the same numbers.",
            "Another call, or another seed, draws other numbers.",
            "The backward pass uses the mask that the forward pass drew.",
            "A value that is computed again for the backward pass draws the numbers of the forward pass.",
            "Dropout keeps an element with the probability asked for and scales what it keeps; ``eval`` turns it off.",
            "Two random operators of one program draw independently of each other.",
            "Random numbers lie in the range, and have the dtype, that their operator promises.",
            "A program that draws nothing leaves the generator as it is; any program leaves Python's as it is.",
            "A program that draws moves the generator on, so that what is drawn after it are other numbers.",
        ),
    ),
    "buffers": (
        "Buffers of modules",
        (
            "Running statistics are updated by a training step as in eager PyTorch.",
            "In ``eval`` they are read and not written.",
            "A buffer that ``forward`` writes holds after each call what it does in eager PyTorch.",
        ),
    ),
    "scalars": (
        "Scalars",
        (
            "A 0-d tensor is an operand by value, whichever device it is on, and does not widen the result's dtype.",
            "A Python number is an operand by value; a later call with another number uses that one.",
            "A Python number as a result is one, of the same value and type.",
        ),
    ),
    "arguments": (
        "Arguments and results as Python values",
        (
            "Tensors in lists, tuples, dicts and keywords are arguments like others, and results keep their structure.",
            "None, strings and flags among arguments choose what the program does at each call.",
            "Tensors that a program closes over are read at each call.",
        ),
    ),
    "calls": (
        "One call after another",
        (
            "Each call's results follow from that call's arguments, whatever earlier calls got and wherever they lie.",
            "A result keeps its values when the program is called again.",
            "Only state of the program itself is kept from one call to the next.",
            "Calls from several threads at once do not disturb each other.",
        ),
    ),
    "shapes": (
        "Sizes that change",
        (
            "A call with other sizes gives what eager PyTorch gives, sizes 0 and 1 included.",
            "With dynamic sizes one compiled program serves them all.",
            "A size used as a number is that of the call at hand.",
            "Sizes computed from sizes are right for all of them.",
            "A call with another number of dimensions gives what eager PyTorch gives.",
        ),
    ),
    "dtypes": (
        "Dtypes that change",
        (
            "A call with another dtype computes in that one.",
            "Operands of different dtypes are promoted as in eager PyTorch.",
            "Integers are exact, and wrap where they overflow.",
            "Each element of a result of bool is the byte 0 or 1.",
        ),
    ),
    "models": (
        "Several models",
        (
            "Compiled programs of one process do not disturb each other.",
            "One program with different weights, as two modules, computes with each one's own.",
            "Weights that are changed or replaced between calls are seen by the next call.",
            "A whole model gives what eager PyTorch gives, within the bound of its rounding.",
        ),
    ),
    "training": (
        "Training",
        (
            "After each of several steps the parameters are what eager PyTorch makes them.",
            "Gradients accumulate over several backward passes, and only over those since they were cleared.",
            "A frozen parameter keeps its value and gets no gradient.",
            "After training, inference computes with the trained parameters.",
        ),
    ),
    "modes": (
        "Modes",
        (
            "Under ``no_grad`` and ``inference_mode`` results are the same and require no gradient.",
            "A mode entered within the program holds there and not after it.",
            "Under ``autocast`` the operators it names compute in its dtype, and results have eager PyTorch's dtypes.",
            "One compiled program serves calls under different modes.",
        ),
    ),
    "errors": (
        "Exceptions",
        (
            "A program that raises in eager PyTorch raises, and its own exceptions reach the caller unchanged.",
            "After an exception the next call gives what it would have given.",
        ),
    ),
    "assertions": (
        "Assertions on values that are known only at run time",
        (
            "An assertion that does not hold raises RuntimeError at each call that breaks it, whether or not anything "
            "relies on it; one that holds changes nothing.",
            "A call that relies on an assertion, by a size, an index or a value, or that follows it in the program, "
            "runs after it: if the assertion does not hold, no such call reads, writes or raises anything.",
        ),
    ),
    "partition": (
        "Programs in several parts",
        (
            "A program of which the backend does only some operators gives what the whole gives.",
            "Writes, views and random numbers cross from part to part.",
            "Gradients cross from part to part.",
        ),
    ),
    "control": (
        "Control flow",
        (
            "Of two branches, the one that the predicate selects is run.",
            "A loop runs as often as in eager PyTorch, also zero times; each turn gets the values of the turn before.",
            "A scan and a map take the elements in order and give each one's result; a scan carries its values on.",
            "Attention gives each score with its own place to the program's function, and sees nothing that a "
            "mask hides.",
        ),
    ),
    "collectives": (
        "Collectives",
        (
            "A collective gives the result of eager PyTorch for the inputs of all processes of the group.",
            "A program makes its collectives in its order, each as often as it says, those whose results are not used "
            "included.",
            "A collective's result is read only once it was waited for; several may be on their way.",
            "A collective's input keeps its values, and its result is memory of its own.",
        ),
    ),
    "lifetimes": (
        "Lifetimes",
        (
            "When a call has returned, a program holds no reference to its arguments: memory that the caller drops is "
            "free.",
            "When a call has returned, a program holds no reference to its results.",
            "Tensors that a forward pass saved are free after its backward pass.",
        ),
    ),
    "graphs": (
        "Drawn programs",
        ("A functional program gives what its operators give one after another, within the bound of their rounding.",),
    ),
    "kernels": (
        "Kernels",
        (
            "A kernel on integers, or on floats whose results are exact, gives what the interpreter gives bit for bit.",
            "A scalar operation is within its budget of the precise result, at special values too.",
            "A fold gives the monoid's result over every size, that of none included, and in every loop nest.",
            "A masked access reads and writes where the mask is true and nowhere else.",
            "A kernel writes its own elements and no others.",
            "A kernel of symbolic sizes serves them all.",
            "A scan gives the running fold in order.",
            "A check records an index that has no place, where its mask is true, and nothing else.",
        ),
    ),
}

CLAUSES: Mapping[str, str] = {
    f"contract.{chapter}.C{k}": sentence
    for chapter, (_, sentences) in CHAPTERS.items()
    for k, sentence in enumerate(sentences, 1)
}
"""Each clause's sentence."""


def page() -> str:
    """The page that states the contract."""
    lines = [
        "# The contract beyond single operators",
        "",
        "A compiled program is held to these sentences by the contract programs of the conformance suite, by",
        "drawn programs, and, where the backend is a loop target, by kernels. A failure cites the sentence it",
        "breaks, as `contract.mutation.C1`. What single operators promise is in",
        "[the operator set](../spec/README.md).",
        "",
    ]
    for chapter, (title, sentences) in CHAPTERS.items():
        lines += [f"## {title}", ""]
        for k, sentence in enumerate(sentences, 1):
            lines += wrap(
                f"* **contract.{chapter}.C{k}** {sentence}",
                120,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        lines += [""]
    return "\n".join(lines)
