"""The actions of drawn sequences: what callers of compiled programs do, each with what it needs and brings about.

``ACTIONS`` is the table. An action that calls a program tells everything about its results; the facts that stand after
any action, such as the values of results that are held, come from the sequence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..devices import HOST
from .context import ZONE
from .world import ROWS, WIDTH, World, listed, memory_of, numbers, with_code_of_its_own, write

Facts = frozenset[str]
NO_FACTS = Facts()


@dataclass(frozen=True)
class Action:
    """``about`` says in a sentence what is done. ``clause`` is broken if the values of its results are wrong.

    ``needs`` are the facts that have to hold before it, ``gives`` those that hold after it, ``ends`` those that hold no
    more. ``profile`` is that of backends which are asked for it. An action that is ``costly`` takes part in pairs, and
    not in triples.
    """

    name: str
    about: str
    clause: str
    do: Callable[[World], None]
    needs: Facts = NO_FACTS
    gives: Facts = NO_FACTS
    ends: Facts = NO_FACTS
    profile: str = "core"
    costly: bool = False


ACTIONS: dict[str, Action] = {}
"""By name."""
RESULTS, WAITING, GRADIENTS = "results", "waiting", "gradients"
"""Facts: that results are held, that a forward pass waits for its backward pass, that weights have gradients."""


def action(
    clause: str,
    *,
    needs: str = "",
    gives: str = "",
    ends: str = "",
    profile: str = "core",
    costly: bool = False,
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """Adds the function below it to the table."""

    def add(do: Callable[[World], None]) -> Callable[[World], None]:
        name, about = do.__name__.replace("_", "-"), " ".join((do.__doc__ or "").split())
        before, after, over = (Facts(text.split()) for text in (needs, gives, ends))
        ACTIONS[name] = Action(name, about, f"contract.{clause}", do, before, after, over, profile, costly)
        return do

    return add


# -- the program is called in another way ------------------------------------------------------------------------------


@action("calls.C1", gives=RESULTS)
def calls(w: World) -> None:
    """Calls the program with fresh arguments."""
    w.call("layer", w.x())


@action("models.C2", gives=RESULTS)
def calls_its_twin(w: World) -> None:
    """Calls the same program of other weights."""
    w.call("twin", w.x())


@action("scalars.C2", gives=RESULTS)
def calls_with_another_literal(w: World) -> None:
    """Calls the same program with another number in it."""
    w.call("literal", w.x())


@action("scalars.C2", gives=RESULTS)
def calls_with_a_literal_nearby(w: World) -> None:
    """Calls the same program with a number in it that differs in its tenth binary digit."""
    w.call("near", w.x())


@action("scalars.C2", gives=RESULTS)
def calls_with_a_number(w: World) -> None:
    """Calls a program with a Python number, another one at each call."""
    x = w.x()
    factor = float(w.ctx.indices(64)) / 8
    with w.settings_stay():
        results = listed(w.programs["scaled"](x, factor))
    w.tell(results, [x])
    w.held.append(results)


@action("models.C1", costly=True)
def compiles_and_calls(w: World) -> None:
    """Compiles a small program, calls it, and drops it."""
    program = w.ctx.compile(with_code_of_its_own(rows_again, "rows_again"))
    x = w.x()
    w.tell(listed(program(x)), [x])


def rows_again(x: Tensor) -> Tensor:
    return x * 2 - 1


@action("modes.C1", gives=RESULTS)
def calls_under_no_grad(w: World) -> None:
    """Calls the program under no_grad."""
    with torch.no_grad():
        w.call("layer", w.x())


@action("modes.C1")
def calls_under_inference_mode(w: World) -> None:
    """Calls the program under inference_mode."""
    with torch.inference_mode():
        w.call("layer", w.x(), hold=False)


@action("modes.C3", gives=RESULTS)
def calls_under_autocast(w: World) -> None:
    """Calls the program under autocast to bfloat16."""
    with torch.autocast(w.ctx.device, torch.bfloat16):
        w.call("layer", w.x())


@action("modes.C4", gives=RESULTS)
def calls_in_eval(w: World) -> None:
    """Calls the program while its module is in eval."""
    w.module.eval()
    w.call("layer", w.x())
    w.module.train()


@action("dtypes.C1", gives=RESULTS)
def calls_in_float64(w: World) -> None:
    """Calls the program with arguments of float64."""
    w.call("layer", w.x().double())


@action("calls.C4", gives=RESULTS)
def calls_in_a_thread(w: World) -> None:
    """Calls the program in a new thread."""
    in_threads(w, [w.x()])


@action("calls.C4", gives=RESULTS)
def calls_in_two_threads(w: World) -> None:
    """Calls the program in two threads at once."""
    in_threads(w, [w.x(), w.x()])


def in_threads(w: World, arguments: list[Tensor]) -> None:
    """Calls the program with each of the arguments, in a thread of its own, and raises what one raised."""
    ready = threading.Barrier(len(arguments))
    results: dict[int, list[Tensor]] = {}
    errors: list[Exception] = []

    def run(k: int) -> None:
        try:
            ready.wait()
            results[k] = listed(w.programs["layer"](arguments[k]))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for k, x in enumerate(arguments):
        w.tell(results[k], [x])
        w.held.append(results[k])


# -- the weights change ------------------------------------------------------------------------------------------------


@action("models.C3", ends=WAITING)
def writes_a_weight(w: World) -> None:
    """Writes to a weight of the program, as an optimizer does. A forward pass that waits is given up."""
    w.weights_change()
    with torch.no_grad():
        w.module.weight.copy_(w.ctx.ints(*w.module.weight.shape, low=-2, high=3))


@action("models.C3", ends=WAITING)
def writes_a_weight_by_its_data(w: World) -> None:
    """Writes to a weight through its data, so that its version stays the same, and gives up what waits."""
    w.weights_change()
    w.module.weight.data.copy_(w.ctx.ints(*w.module.weight.shape, low=-2, high=3))


@action("models.C3", ends=WAITING)
def replaces_a_weight(w: World) -> None:
    """Frees a weight of the program and puts a new one in its place. A forward pass that waits is given up."""
    w.weights_change()
    del w.module.weight
    w.module.weight = nn.Parameter(w.ctx.ints(3, WIDTH, low=-2, high=3))


@action("models.C3")
def writes_a_frozen_weight(w: World) -> None:
    """Writes to a weight that needs no gradient, which a backend may take for a constant."""
    w.changed["twin"] = "contract.models.C3"
    w.modules["twin"].weight.copy_(w.ctx.ints(*w.module.weight.shape, low=-2, high=3))


# -- training ----------------------------------------------------------------------------------------------------------


@action("gradients.C1", gives=f"{GRADIENTS} {RESULTS}", profile="training")
def trains(w: World) -> None:
    """Runs a forward pass and its backward pass."""
    x = w.x().requires_grad_()
    differentiate(w, x, w.call("layer", x))


@action("gradients.C1", gives=WAITING, profile="training")
def runs_forward(w: World) -> None:
    """Runs a forward pass whose backward pass comes later."""
    x = w.x().requires_grad_()
    if len(w.pending) == 3:
        w.pending.popleft()
    w.pending.append((x, w.call("layer", x, hold=False)))


@action("gradients.C1", needs=WAITING, gives=GRADIENTS, ends=WAITING, profile="training")
def runs_backward(w: World) -> None:
    """Runs the backward passes of the forward passes that wait, the first one first, and frees what they saved."""
    while w.pending:
        x, results = w.pending.popleft()
        differentiate(w, x, results)
    memory = [memory_of(x), *map(memory_of, results)]
    del x, results
    w.dies("a forward pass that went backward", memory, "contract.lifetimes.C3")


@action("gradients.C1", gives=GRADIENTS, profile="training")
def runs_backward_in_a_thread(w: World) -> None:
    """Runs a forward pass, and its backward pass in a new thread."""
    x = w.x().requires_grad_()
    results = w.call("layer", x, hold=False)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(differentiate, w, x, results).result()


@action("gradients.C8", gives=GRADIENTS, profile="training")
def runs_backward_twice(w: World) -> None:
    """Runs a backward pass twice with retain_graph."""
    x = w.x().requires_grad_()
    y = w.call("layer", x, hold=False)[0]
    inputs, tangent = [x, *w.module.parameters()], w.ctx.ints(*y.shape, low=-1, high=2)
    first = torch.autograd.grad(y, inputs, tangent, retain_graph=True)
    before = [numbers(g) for g in first]
    again = torch.autograd.grad(y, inputs, tangent)
    w.fact("first gradients", before, "contract.gradients.C1")
    w.fact("second gradients", [numbers(g) for g in again])
    w.fact("first gradients at the end", [numbers(g) for g in first], "contract.calls.C2")


def differentiate(w: World, x: Tensor, results: list[Tensor]) -> None:
    w.module.zero_grad()
    outs = [r for r in results if r.requires_grad]
    torch.autograd.backward(outs, [w.ctx.ints(*r.shape, low=-1, high=2).to(r.dtype) for r in outs])
    gradients = [p.grad for p in (x, *w.module.parameters())]
    w.fact("gradients", [None if g is None else numbers(g) for g in gradients], "contract.gradients.C1")
    w.held.append([g for g in gradients if g is not None])


@action("training.C1", needs=GRADIENTS, ends=f"{GRADIENTS} {WAITING}", profile="training")
def steps(w: World) -> None:
    """Adds the gradients to the weights. A forward pass that waits is given up."""
    w.weights_change("contract.training.C1")
    with torch.no_grad():
        for p in w.module.parameters():
            if p.grad is not None:
                p.sub_(p.grad).round_().clamp_(-2, 2)
    w.module.zero_grad()


# -- the arguments change ----------------------------------------------------------------------------------------------


@action("calls.C1", gives=RESULTS)
def calls_on_rows(w: World) -> None:
    """Calls a second program."""
    w.call("rows", w.x(), w.m())


@action("shapes.C1", gives=RESULTS)
def calls_on_one_row_more(w: World) -> None:
    """Calls the second program with one row more."""
    w.call("rows", w.x(ROWS + 1), w.m())


@action("shapes.C1", gives=RESULTS)
def calls_on_one_row_less(w: World) -> None:
    """Calls the second program with one row less."""
    w.call("rows", w.x(ROWS - 1), w.m())


@action("shapes.C1", gives=RESULTS)
def calls_on_one_row(w: World) -> None:
    """Calls the second program with a single row."""
    w.call("rows", w.x(1), w.m())


@action("layouts.C2", gives=RESULTS)
def calls_on_a_transpose(w: World) -> None:
    """Calls the second program with a transposed argument of the same sizes."""
    w.call("rows", w.ctx.ints(WIDTH, ROWS).t(), w.m())


@action("layouts.C2", gives=RESULTS)
def calls_on_a_window(w: World) -> None:
    """Calls the second program with an argument in the middle of a larger memory."""
    w.memory.copy_(w.ctx.ints(*w.memory.shape))
    w.call("rows", w.memory[ZONE - 1 : ZONE - 1 + ROWS * WIDTH].view(ROWS, WIDTH), w.m())


@action("layouts.C2", gives=RESULTS)
def calls_on_an_expanded_row(w: World) -> None:
    """Calls the second program with one row that is expanded to several."""
    w.call("rows", w.x(1).expand(ROWS, WIDTH), w.m())


@action("mutation.C6", gives=RESULTS)
def calls_on_aliases(w: World) -> None:
    """Calls the second program with an argument and a row of it."""
    x = w.x()
    w.call("rows", x, x[2])


@action("calls.C1", gives=RESULTS)
def calls_on_the_same_argument(w: World) -> None:
    """Calls the second program with an argument that the caller keeps, and may have written to."""
    w.call("rows", w.argument, w.argument[0])


@action("calls.C1")
def writes_to_the_argument(w: World) -> None:
    """Writes to the argument that is kept."""
    w.argument.copy_(w.x())


@action("calls.C1")
def writes_to_the_argument_by_its_data(w: World) -> None:
    """Writes to the argument that is kept through its data, so that its version stays the same."""
    w.argument.data.copy_(w.x())


@action("calls.C1")
def replaces_the_argument(w: World) -> None:
    """Frees the argument that is kept, and makes a new one."""
    del w.argument
    w.argument = w.x()


@action("lifetimes.C1")
def drops_an_argument(w: World) -> None:
    """Calls a program, drops its arguments and its result, and sees whether their memory is free."""
    a, b = w.x(), w.ctx.ints(WIDTH, 2)
    (result,) = w.call("product", a, b, hold=False)
    memory, own = [memory_of(a), memory_of(b)], [memory_of(result)]
    del a, b, result
    w.dies("arguments that were dropped", memory, "contract.lifetimes.C1")
    w.dies("results that were dropped", own, "contract.lifetimes.C2")


# -- the results are used ----------------------------------------------------------------------------------------------


@action("calls.C1", needs=RESULTS)
def passes_a_result_on(w: World) -> None:
    """Calls the second program with an earlier result as an argument."""
    fit = [x for results in w.held for x in results if x.dim() == 2 and x.dtype == w.ctx.dtype]
    x = next((x.detach() for x in reversed(fit) if x.shape[0] > 1 and x.shape[1] == WIDTH), w.argument)
    w.call("rows", x, w.m(), hold=False)


@action("calls.C2", needs=RESULTS)
def writes_to_a_result(w: World) -> None:
    """Writes to an earlier result."""
    with torch.no_grad():
        w.held[-1][0].detach().copy_(w.held[-1][0].sign() + 3)


@action("calls.C2", needs=RESULTS)
def holds_a_view_of_a_result(w: World) -> None:
    """Drops results but for views of them."""
    w.held[-1] = [x.detach()[:1] for x in w.held[-1] if x.dim()]


@action("lifetimes.C2", needs=RESULTS, ends=RESULTS)
def drops_results(w: World) -> None:
    """Drops all results that are held."""
    w.held.clear()


# -- writes, draws and exceptions --------------------------------------------------------------------------------------


@action("mutation.C2", gives=RESULTS)
def has_a_buffer_written(w: World) -> None:
    """Calls a program that writes to its second argument."""
    written(w, w.buffer)


@action("mutation.C5", gives=RESULTS)
def has_a_window_written(w: World) -> None:
    """Calls a program that writes to a piece of a larger memory."""
    written(w, w.memory[ZONE + 1 : ZONE + 1 + WIDTH])


def written(w: World, buffer: Tensor) -> None:
    x = w.x()
    with w.settings_stay():
        results = listed(w.programs[write.__name__](x, buffer))
    w.tell(results, [x])
    w.held.append(results)
    w.fact("what is written", numbers(buffer))


@action("random.C2")
def draws(w: World) -> None:
    """Calls a program that draws random numbers."""
    w.differs_from_earlier(w.drawn())


@action("random.C2")
def draws_in_a_thread(w: World) -> None:
    """Calls the program that draws in a new thread."""
    with ThreadPoolExecutor(1) as thread:
        w.differs_from_earlier(thread.submit(w.drawn).result())


@action("random.C9")
def draws_in_eager(w: World) -> None:
    """Draws as many random numbers outside of a program."""
    w.differs_from_earlier(torch.rand(8, 16, dtype=w.ctx.dtype, device=w.ctx.device))


@action("random.C1")
def seeds_and_draws(w: World) -> None:
    """Seeds the generator and calls the program that draws."""
    torch.manual_seed(w.ctx.seed + 5)
    w.same_as_first("seed", w.drawn())
    w.draws.clear()


@action("random.C1")
def sets_the_state_and_draws(w: World) -> None:
    """Sets the generator to an earlier state, and calls the program that draws from there twice."""
    state = w.ctx.random_state()
    first = w.drawn()
    w.set_random_state(state)
    w.must("the numbers of this state", torch.equal(first, w.drawn()))
    w.draws.clear()


@action("errors.C2", costly=True)
def raises(w: World) -> None:
    """Calls a program with sizes that do not fit, and then with others."""
    w.raises("product", w.x(), w.x())
    w.call("product", w.x(), w.ctx.ints(WIDTH, 2), hold=False)


@action("errors.C2")
def raises_while_it_runs(w: World) -> None:
    """Calls a program with an index out of range, which only its run can notice, and then with another index."""
    if w.ctx.device == HOST:  # other devices tell late, and some of them can do nothing afterwards
        table, places = w.x(), w.ctx.indices(1, 3) + 99
        w.raises("pick", table, places)
        memory = [memory_of(table), memory_of(places)]
        del table, places
        w.dies("the arguments of a call that raised", memory, "contract.lifetimes.C1")
    w.call("pick", w.x(), w.ctx.indices(ROWS, 3), hold=False)
