"""Makes random programs that are right: each use waits for those that it must not race with.

All values are whole numbers below 2 ** 24, so each sum is exact. A twin of each tensor on the CPU
says what a program must compute.
"""
from __future__ import annotations

import math
import random
from typing import Any

import torch

from . import order
from .order import HOST, Effect, Order, Past, Uses
from .program import Program, Step
from .tensors import MOST_ELEMENTS, Tensor, View, bits_of, is_copied_at_once, is_large
from .threads import at_the_same_time

ON_DEVICE = ', device="cuda"'
PINNED = ", pin_memory=True"
LATER = ", non_blocking=True"


def program(seed: int, name: str) -> Program:
    """The program of a seed."""
    return _Maker(random.Random(seed)).make(name)


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.steps: list[Step] = []
        self.order = Order()
        self.tensors: list[Tensor] = []
        self.twins: dict[str, Any] = {"torch": torch}
        self.kept: set[str] = set()
        """The memory of graphs, which no other tensor gets."""
        self.events: list[str] = []
        self.loaded: set[int] = set()
        """The streams that loops over a DataLoader have used."""
        self.made = 0
        self.streams = rng.choice((2, 2, 3, 3, 4))
        self.stream = 0
        self.shape = (rng.randint(2, 6), rng.randint(2, 8))
        self.restless = rng.random()
        self.threads = rng.random() < 0.2

    def make(self, name: str) -> Program:
        self.add(Step("import torch"))
        if self.threads:
            self.add(Step("import threading"))
        self.add(Step("s0 = torch.cuda.default_stream()"))
        for stream in range(1, self.streams):
            priority = self.rng.choice(("", "", "priority=-1"))
            self.add(Step(f"s{stream} = torch.cuda.Stream({priority})"))
        self.full(0)
        for _ in range(self.rng.randint(6, 25)):
            if self.rng.random() < self.restless:
                self.stream = self.rng.randrange(self.streams)
            self.rng.choices(*zip(*ACTIONS))[0](self)
        for tensor in self.tensors:
            if self.rng.random() < 0.5:
                self.check(tensor)
        self.add(Step("torch.cuda.synchronize()", (order.Synchronize(),)))
        if self.threads:
            self.steps = list(at_the_same_time(self.steps, self.rng))
        return Program(name, tuple(self.steps))

    # ---- steps ----------------------------------------------------------------------------------

    def add(self, step: Step) -> None:
        self.order.step = len(self.steps)
        for effect in step.effects:
            self.order.apply(effect)
        assert not self.order.races, step
        self.steps.append(step)

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def on(self, stream: int, line: str, new: str | None = None) -> str:
        """A line as it is written for a stream; `new` is the variable that it sets."""
        text = line if stream == 0 else f"with torch.cuda.stream(s{stream}):\n    {line}"
        if not self.threads or "assert" in line or self.rng.random() < 0.7:
            return text
        body = "".join(f"    {line}\n" for line in text.split("\n"))
        known = f"    global {new}\n" if new else ""
        return (f"def part():\n{known}{body}thread = threading.Thread(target=part)\n"
                "thread.start()\nthread.join()")

    def prepare(self, uses: Uses) -> None:
        """Lets the uses' agent wait for all that it must."""
        for one, writes in [(use, False) for use in uses.reads] + [(u, True) for u in uses.writes]:
            while missing := self.order.unordered(uses.agent, *one, writes):
                self.wait(uses.agent, self.rng.choice(missing))

    def wait(self, agent: int, past: Past) -> None:
        """Adds a wait of an agent for a stream's earlier use."""
        assert past.agent != HOST, "calls come after what the host did"
        ways = [self.host_waits_for_stream, self.host_waits_for_device, self.host_waits_for_event]
        if agent != HOST:
            ways += [self.wait_for_stream] * 4 + [self.wait_for_event] * 4
        self.rng.choice(ways)(agent, past)

    def wait_for_stream(self, agent: int, past: Past) -> None:
        text, effect = f"s{agent}.wait_stream(s{past.agent})", order.WaitStream(agent, past.agent)
        self.add(Step(text, (effect,), wait="wait_stream"))

    def wait_for_event(self, agent: int, past: Past) -> None:
        event = self.event_after(past)
        text = self.rng.choice((f"s{agent}.wait_event({event})", f"{event}.wait(s{agent})"))
        self.add(Step(text, (order.Wait(agent, event),), wait="wait_event"))

    def host_waits_for_stream(self, agent: int, past: Past) -> None:
        effect = order.Synchronize(past.agent)
        self.add(Step(f"s{past.agent}.synchronize()", (effect,), wait="stream.synchronize"))

    def host_waits_for_device(self, agent: int, past: Past) -> None:
        self.add(Step("torch.cuda.synchronize()", (order.Synchronize(),), wait="synchronize"))

    def host_waits_for_event(self, agent: int, past: Past) -> None:
        event = self.event_after(past)
        text, kind = self.rng.choice(((f"{event}.synchronize()", "event.synchronize"),
                                      (f"while not {event}.query():\n    pass", "query")))
        self.add(Step(text, (order.SynchronizeEvent(event),), wait=kind))

    def event_after(self, past: Past) -> str:
        """An event that is recorded after the use."""
        known = [event for event in self.events
                 if self.order.events[event].get(past.agent, 0) >= past.position]
        if known and self.rng.random() < 0.7:
            return self.rng.choice(known)
        return self.record(past.agent)

    def record(self, stream: int) -> str:
        if self.events and self.rng.random() < 0.2:
            event = self.rng.choice(self.events)
            text = f"{event}.record(s{stream})"
        else:
            event = self.name("e")
            self.events.append(event)
            text = self.rng.choice((f"{event} = torch.cuda.Event()\n{event}.record(s{stream})",
                                    f"{event} = s{stream}.record_event()"))
        self.add(Step(text, (order.Record(event, stream),)))
        return event

    # ---- tensors --------------------------------------------------------------------------------

    def pick(self, *, on_device: bool = True, **what: bool) -> Tensor | None:
        wanted = {"index": False, **what}
        fits = [tensor for tensor in self.tensors if tensor.on_device == on_device
                and self.twins[tensor.name].numel() <= MOST_ELEMENTS
                and all(getattr(tensor, name) == value for name, value in wanted.items())]
        # Often the one that was made last.
        return self.rng.choice((self.rng.choice(fits), fits[-1])) if fits else None

    def host(self, pinned: bool) -> Tensor:
        """Memory of the host that is copied as it is: PyTorch first packs what has gaps."""
        tensor = self.pick(on_device=False, pinned=pinned)
        if tensor is None or not self.twins[tensor.name].is_contiguous():
            tensor = self.pinned() if pinned else self.pageable()
        return tensor

    def device(self) -> Tensor:
        return self.pick() or self.full(self.stream)

    def view(self, tensor: Tensor) -> View:
        """A tensor or a part of it."""
        name, rng = tensor.name, self.rng
        twin = self.twins[name]
        texts = [name] * 3
        if twin.dim() == 2:
            (row, rows), (column, columns) = self.part(twin.size(0)), self.part(twin.size(1))
            texts += [f"{name}[{row}:{rows}]", f"{name}[{row}]", f"{name}[:, {column}:{columns}]",
                      f"{name}[:, {column}]", f"{name}.t()", f"{name}[::2]",
                      f"{name}[{row}:{rows}, {column}:{columns}]"]
            if twin.is_contiguous():  # otherwise it is a copy
                texts.append(f"{name}.flatten()")
        elif twin.dim() == 1 and twin.numel():
            first, last = self.part(twin.size(0))
            texts += [f"{name}[{first}:{last}]", f"{name}[::2]", f"{name}[:, None]"]
        text = rng.choice(texts)
        return View(tensor, text, eval(text, self.twins))

    def rows(self, tensor: Tensor) -> View:
        """A tensor or rows of it, which are contiguous."""
        twin = self.twins[tensor.name]
        first, last = self.part(twin.size(0)) if twin.dim() else (0, 1)
        texts = [tensor.name] if not twin.dim() else [tensor.name, f"{tensor.name}[{first}:{last}]"]
        text = self.rng.choice(texts)
        return View(tensor, text, eval(text, self.twins))

    def part(self, count: int) -> tuple[int, int]:
        first = self.rng.randrange(count) if count else 0
        return first, self.rng.randint(first + 1, max(count, first + 1))

    def like(self, shape: torch.Size) -> View:
        """A view of this shape; a new tensor if none is found."""
        for _ in range(6):
            tensor = self.pick()
            if tensor is not None:
                view = self.view(tensor)
                if view.twin.shape == shape:
                    return view
        return self.whole(self.full(self.stream, tuple(shape)))

    def whole(self, tensor: Tensor) -> View:
        return View(tensor, tensor.name, self.twins[tensor.name])

    def allocate(
        self, tensor: Tensor, line: str, uses: Uses | None, *more: Effect, twin: str | None = None,
        **step: Any,
    ) -> Tensor:
        """Adds `name = line`, which makes memory of its own and writes all of it."""
        if uses is not None:
            self.prepare(uses)
        code = twin or line.replace(ON_DEVICE, "").replace(PINNED, "").replace(LATER, "")
        made = eval(code, self.twins)
        self.twins[tensor.name] = made
        memory = order.Allocate(tensor.name, tensor.agent,
                                made.untyped_storage().nbytes() // 4)
        new = tensor.name, bits_of(made)
        agent = tensor.agent if uses is None else uses.agent
        reads = uses.reads if uses else ()
        # Part of the line may run before PyTorch allocates the result, and so before the allocator
        # asks the events of freed memory.
        early = (Uses(agent, reads, certain=False),) if reads else ()
        self.add(Step(self.on(self.stream if tensor.agent == HOST else tensor.agent,
                              f"{tensor.name} = {line}", tensor.name),
                      (*early, memory, Uses(agent, reads, (new,)), *more), (tensor.name,), **step))
        self.tensors.append(tensor)
        return tensor

    def full(self, stream: int, shape: tuple[int, ...] | None = None) -> Tensor:
        """A new tensor on the device."""
        shape = self.shape if shape is None else shape
        value = self.rng.randint(1, 9)
        count = math.prod(shape)
        line = self.rng.choice((f"torch.full({shape}, {value}.0{ON_DEVICE})",
                                f"torch.ones({shape}{ON_DEVICE})",
                                f"torch.arange({count}.0{ON_DEVICE}).view({shape})"))
        return self.allocate(Tensor(self.name("x"), stream), line, None)

    def pinned(self) -> Tensor:
        shape, value = self.shape, self.rng.randint(1, 9)
        line = self.rng.choice((f"torch.full({shape}, {value}.0{PINNED})",
                                f"torch.ones({shape}{PINNED})"))
        return self.allocate(Tensor(self.name("h"), HOST, pinned=True), line, None)

    def pin(self) -> None:
        """A copy in page-locked memory, which has the strides of its source."""
        host = self.pick(on_device=False, pinned=False) or self.pageable()
        source = self.rows(host)
        read = Uses(HOST, (source.use,), certain=False)
        self.prepare(read)
        self.allocate(Tensor(self.name("h"), HOST, pinned=True), f"{source.text}.pin_memory()",
                      None, read, twin=f"torch.empty_strided({source.text}.size(), "
                      f"{source.text}.stride()).copy_({source.text})")

    def pageable(self) -> Tensor:
        line = f"torch.full({self.shape}, {self.rng.randint(1, 9)}.0)"
        return self.allocate(Tensor(self.name("p"), HOST), line, None)

    def reduce(self, tensor: Tensor) -> None:
        """Makes large values smaller."""
        twin = self.twins[tensor.name]
        if is_large(twin):
            self.change(View(tensor, tensor.name, twin), (), "{v}.remainder_(97)")

    # ---- what a stream does ---------------------------------------------------------------------

    def change(self, view: View, reads: tuple[tuple[str, int], ...], line: str) -> None:
        """Adds a line that changes a view in place."""
        uses = Uses(self.stream, (*reads, view.use), (view.use,))
        self.prepare(uses)
        text = line.replace("{v}", view.text)
        exec(text, self.twins)
        self.add(Step(self.on(self.stream, text), (uses,)))

    def compute(self) -> None:
        """A new tensor out of others."""
        a = self.view(self.device())
        choices = ["{a}.clone()", "({a} * 2)", "({a} + 3)", "{a}.relu()", "{a}.sum()",
                   "{a}.remainder(7)", "{a}.neg()", "({a} > 3).float()", "{a}.square().sum()",
                   "torch.zeros_like({a}).add_({a})", "{a}.contiguous() + 0"]
        if a.twin.dim() and a.twin.numel():
            choices += ["{a}.sum(0)", "{a}.amax(-1)", "{a}.cumsum(0)", "{a}.flip(0)",
                        "{a}.sort(-1).values", "{a}.argmax(-1).float()", "{a}.repeat(2)"
                        if a.twin.dim() == 1 else "{a}.roll(1, 0)"]
        reads = (a.use,)
        if self.rng.random() < 0.5:
            b = self.like(a.twin.shape)
            choices = ["({a} + {b})", "({a} - {b})", "torch.maximum({a}, {b})",
                       "torch.where({a} > {b}, {a}, {b})", "torch.addcmul({a}, {a}, {b})",
                       "torch.cat([{a}.flatten(), {b}.flatten()])",
                       "torch.stack([{a}, {b}]).sum(0)"]
            if a.twin.dim() == 2:
                choices += ["({a} @ {b}.t())", "torch.addmm({a}.sum(0)[:1], {a}, {b}.t())",
                            "torch.nn.functional.linear({a}, {b})"] * 2
            reads = (a.use, b.use)
        else:
            b = a
        line = self.rng.choice(choices).replace("{a}", a.text).replace("{b}", b.text)
        tensor = Tensor(self.name("x"), self.stream)
        self.reduce(self.allocate(tensor, line, Uses(self.stream, reads)))

    def in_place(self) -> None:
        a = self.view(self.device())
        choices = ["{v}.add_(1)", "{v}.mul_(2)", "{v}.zero_()", "{v}.fill_(4)", "{v}.clamp_(max=9)",
                   "{v}.neg_()"]
        reads: tuple[tuple[str, int], ...] = ()
        if self.rng.random() < 0.6:
            b = self.like(a.twin.shape)
            if b.bits & a.bits and b.tensor is a.tensor:
                return  # PyTorch refuses some of them, and copies nothing to itself
            choices = [f"{{v}}.add_({b.text})", f"{{v}}.copy_({b.text})", f"{{v}}.sub_({b.text})",
                       f"torch.maximum({{v}}, {b.text}, out={{v}})" if a.text == a.tensor.name
                       else f"{{v}}.copy_({b.text})", f"torch._foreach_add_([{{v}}], [{b.text}])"]
            reads = (b.use,)
        self.change(a, reads, self.rng.choice(choices))
        self.reduce(a.tensor)

    def index(self) -> None:
        """Rows that another tensor names."""
        tensor = self.device()
        twin = self.twins[tensor.name]
        if twin.dim() != 2:
            return
        numbers = self.pick(index=True)
        if numbers is None or self.rng.random() < 0.3:
            numbers = self.row_numbers()
        rows = [row for row in self.twins[numbers.name].tolist()]
        if max(rows) >= twin.size(0):
            return
        bits = 0
        for row in rows:
            bits |= bits_of(twin[row])
        reads, name = self.whole(numbers).use, tensor.name
        if self.rng.random() < 0.5:
            line = self.rng.choice((f"{name}[{numbers.name}]",
                                    f"{name}.index_select(0, {numbers.name})",
                                    f"torch.nn.functional.embedding({numbers.name}, {name})"))
            uses = Uses(self.stream, (reads, (name, bits)))
            self.allocate(Tensor(self.name("x"), self.stream), line, uses)
            return
        value = self.like(torch.Size((len(rows), twin.size(1))))
        if value.tensor is tensor:
            return
        choices = [f"{name}.index_add_(0, {numbers.name}, {value.text})"]
        if len(set(rows)) == len(rows):
            choices += [f"{name}.index_copy_(0, {numbers.name}, {value.text})",
                        f"{name}[{numbers.name}] = {value.text}"]
        line = self.rng.choice(choices)
        rows_used = (name, bits)
        uses = Uses(self.stream, (reads, value.use, rows_used), (rows_used,))
        self.prepare(uses)
        exec(line, self.twins)
        self.add(Step(self.on(self.stream, line), (uses,)))
        self.reduce(tensor)

    def row_numbers(self) -> Tensor:
        """A tensor of indices, by an upload that the host waits for."""
        rows = [self.rng.randrange(self.shape[0]) for _ in range(self.rng.randint(1, 4))]
        tensor = Tensor(self.name("i"), self.stream, index=True)
        maybe = order.Synchronize(self.stream, certain=False)
        return self.allocate(tensor, f"torch.tensor({rows}{ON_DEVICE})", None, maybe)

    def masked(self) -> None:
        """A shape that depends on values: the host waits for the stream."""
        a = self.whole(self.device())
        line, uses = f"{a.text}[{a.text} > 2]", Uses(self.stream, (a.use,))
        self.allocate(Tensor(self.name("x"), self.stream), line, uses,
                      order.Synchronize(self.stream, certain=False))

    def gradient(self) -> None:
        """A backward pass on the same stream."""
        a = self.whole(self.device())
        leaf, loss, tensor = self.name("w"), self.name("l"), Tensor(self.name("x"), self.stream)
        read = Uses(self.stream, (a.use,))
        self.prepare(read)
        lines = [f"{leaf} = {a.text}.detach().clone().requires_grad_()",
                 f"{loss} = ({leaf} * 3).sum()", f"{loss}.backward()"]
        text = "\n".join([*self.indented(lines), f"{tensor.name} = {leaf}.grad",
                          f"del {leaf}, {loss}"])
        twin = self.twins[tensor.name] = torch.full_like(a.twin, 3)
        memory = order.Allocate(tensor.name, self.stream, twin.untyped_storage().nbytes() // 4)
        write = Uses(self.stream, (), ((tensor.name, bits_of(twin)),))
        self.add(Step(text, (read, memory, write), (tensor.name,)))
        self.tensors.append(tensor)

    def indented(self, lines: list[str]) -> list[str]:
        if self.stream == 0:
            return lines
        return [f"with torch.cuda.stream(s{self.stream}):", *(f"    {line}" for line in lines)]

    # ---- copies ---------------------------------------------------------------------------------

    def upload(self) -> None:
        """A new tensor out of page-locked memory, or into one that is there."""
        host = self.host(pinned=True)
        source = self.rows(host)
        later, uses = self.rng.random() < 0.8, Uses(self.stream, (source.use,))
        # Of a copy that it waits for, PyTorch tells its allocator nothing.
        ends: list[Effect] = [order.RecordStream(host.name, self.stream) if later
                              else order.Synchronize(self.stream, certain=False)]
        flag = LATER if later else ""
        if self.rng.random() < 0.5:
            lines = [f'{source.text}.to("cuda"{flag})', f"{source.text}.cuda({flag[2:]})"]
            if later:  # otherwise the host would convert it
                lines.append(f'{source.text}.to("cuda", torch.float64{flag}).float()')
            line = self.rng.choice(lines)
            self.allocate(Tensor(self.name("x"), self.stream), line, uses, *ends,
                          twin=f"{source.text}.clone()")
            return
        self.copy(self.like(source.twin.shape), source, flag, ends)

    def copy(self, to: View, source: View, flag: str, ends: list[Effect], **step: Any) -> None:
        uses = Uses(self.stream, (source.use,), (to.use,))
        self.prepare(uses)
        line = f"{to.text}.copy_({source.text}{flag})"
        exec(line, self.twins)
        self.add(Step(self.on(self.stream, line), (uses, *ends), **step))

    def upload_pageable(self) -> None:
        """The host's memory is read during the call."""
        host = self.pick(on_device=False, pinned=False) or self.pageable()
        source, flag = self.rows(host), self.rng.choice((LATER, ""))
        maybe = order.Synchronize(self.stream, certain=False)
        read = Uses(HOST, (source.use,), certain=False)
        self.prepare(read)
        self.allocate(Tensor(self.name("x"), self.stream), f'{source.text}.to("cuda"{flag})', None,
                      read, maybe, twin=f"{source.text}.clone()")

    def download(self) -> None:
        source = self.view(self.device())
        uses = Uses(self.stream, (source.use,))
        ways = self.rng.randrange(5)
        if ways == 0 and is_copied_at_once(source.twin):  # to new page-locked memory
            tensor = Tensor(self.name("h"), HOST, pinned=True)
            recorded = order.RecordStream(tensor.name, self.stream)
            self.allocate(tensor, f'{source.text}.to("cpu"{LATER})', uses, recorded,
                          twin=f"{source.text}.clone()")
        elif ways < 2:  # the host waits
            tensor = Tensor(self.name("p"), HOST)
            self.allocate(tensor, f"{source.text}.cpu()", uses, self.waited(source),
                          twin=f"{source.text}.clone()")
        else:
            pinned = ways != 4
            host = self.host(pinned)
            to = self.rows(host)
            if to.twin.shape != source.twin.shape:
                source = self.like(to.twin.shape)
            recorded = order.RecordStream(host.name, self.stream)
            if ways != 3:
                # Of pageable memory it is complete when the call returns, unless CUDA's own rules
                # are asked for.
                self.copy(to, source, LATER, [recorded if pinned else self.waited(source)])
                return
            line = f"{to.text}.copy_({source.text}{LATER})"
            used = Uses(self.stream, (source.use,), (to.use,))
            self.copy(to, source, "", [self.waited(source)], wait="blocking copy",
                      weaker=Step(self.on(self.stream, line), (used, recorded)))

    def waited(self, source: View) -> Effect:
        """What a download does that the host waits for: one of nothing waits for nothing."""
        return order.Synchronize(self.stream, certain=source.twin.numel() > 0)

    def load(self) -> None:
        """A loop over a DataLoader, whose batches are page-locked."""
        tensor, workers = Tensor(self.name("x"), self.stream), int(self.rng.random() < 0.02)
        count, size = self.rng.randint(1, 9), self.rng.randint(1, 4)
        lines = [f"{tensor.name} = torch.zeros(()" f"{ON_DEVICE})",
                 "for (batch,) in torch.utils.data.DataLoader(",
                 f"    torch.utils.data.TensorDataset(torch.arange({count}.0)), batch_size={size},",
                 f"    num_workers={workers}, pin_memory=True,",
                 "):",
                 f'    {tensor.name} += batch.to("cuda", non_blocking=True).sum()']
        twin = self.twins[tensor.name] = torch.tensor(float(sum(range(count))))
        memory = order.Allocate(tensor.name, self.stream, 1)
        others = order.Allocate(self.name("batches"), HOST, 1)
        uses = Uses(self.stream, (), ((tensor.name, bits_of(twin)),))
        # The allocator asks events. The last batch of an earlier loop lives until this one begins.
        self.loaded.add(self.stream)
        asked = [order.Synchronize(stream, certain=False) for stream in sorted(self.loaded)]
        self.add(Step("\n".join(self.indented(lines)), (others, memory, uses, *asked),
                      (tensor.name,)))
        self.tensors.append(tensor)

    def capture(self) -> None:
        """A graph that is replayed on the stream. Making one waits for the device."""
        a, graph = self.whole(self.device()), self.name("g")
        tensor = Tensor(self.name("x"), self.stream)
        twin = self.twins[tensor.name] = a.twin * 2 + 1
        memory = order.Allocate(tensor.name, self.stream, twin.untyped_storage().nbytes() // 4)
        maybe = order.Synchronize(certain=False)
        self.add(Step(f"{graph} = torch.cuda.CUDAGraph()\nwith torch.cuda.graph({graph}):\n"
                      f"    {tensor.name} = {a.text} * 2 + 1", (maybe, memory), (tensor.name,)))
        self.kept.add(tensor.name)
        self.tensors.append(tensor)
        for _ in range(self.rng.randint(1, 2)):
            uses = Uses(self.stream, (a.use,), ((tensor.name, bits_of(twin)),))
            self.prepare(uses)
            self.add(Step(self.on(self.stream, f"{graph}.replay()"), (uses,)))
        self.reduce(tensor)

    def empty(self) -> None:
        """Memory that no tensor has goes back to CUDA, which waits for the device."""
        self.add(Step("torch.cuda.empty_cache()", (order.Synchronize(certain=False),)))

    # ---- the host -------------------------------------------------------------------------------

    def write(self) -> None:
        """The host writes its memory."""
        host = self.pick(on_device=False) or self.pinned()
        view = self.view(host)
        uses = Uses(HOST, (view.use,), (view.use,), certain=host.pinned)
        self.prepare(uses)
        value = self.rng.randint(1, 9)
        line = self.rng.choice((f"{view.text}.fill_({value})", f"{view.text}.add_({value})",
                                f"{view.text}.zero_()", f"{view.text}.numpy()[...] = {value}"))
        exec(line, self.twins)
        self.add(Step(line, (uses,)))
        self.reduce_on_host(host)

    def reduce_on_host(self, host: Tensor) -> None:
        if is_large(self.twins[host.name]):
            use = self.whole(host).use
            uses = Uses(HOST, (use,), (use,), certain=host.pinned)
            self.prepare(uses)
            line = f"{host.name}.remainder_(97)"
            exec(line, self.twins)
            self.add(Step(line, (uses,)))

    def read(self) -> None:
        host = self.pick(on_device=False)
        if host is not None:
            self.check(host)

    def look(self) -> None:
        self.check(self.device())

    def check(self, tensor: Tensor) -> None:
        """Compares values, which the host waits for."""
        view = self.view(tensor)
        agent = self.stream if tensor.on_device else HOST
        uses = Uses(agent, (view.use,), certain=tensor.on_device or tensor.pinned)
        self.prepare(uses)
        values = view.twin.tolist()
        if view.twin.numel() > 64 or self.rng.random() < 0.3:
            line = f"assert {view.text}.sum().item() == {view.twin.sum().item()}"
        elif self.rng.random() < 0.2 and tensor.on_device and view.twin.numel():
            line = f"assert bool(({view.text} == torch.tensor({values}{ON_DEVICE})).all())"
        else:
            line = f"assert {view.text}.tolist() == {values}"
        waits = tensor.on_device and (view.twin.numel() or ".item()" in line)
        ends = (order.Synchronize(self.stream),) if waits else ()
        text = self.on(self.stream, line) if tensor.on_device else line
        self.add(Step(text, (uses, *ends)))

    def drop(self) -> None:
        """A tensor is gone. What other streams do with it must be known to its own, or recorded."""
        gone = [tensor for tensor in self.tensors if tensor.name not in self.kept]
        if not gone:
            return
        tensor = self.rng.choice(gone)
        while not tensor.pinned and (missing := self.order.unfreeable(tensor.name)):
            past = self.rng.choice(missing)
            if tensor.on_device and self.rng.random() < 0.6:
                text = f"{tensor.name}.record_stream(s{past.agent})"
                self.add(Step(text, (order.RecordStream(tensor.name, past.agent),),
                              wait="record_stream"))
            else:
                self.wait(tensor.agent, past)
        twin = self.twins[tensor.name]
        # The C library's own memory may go to anybody.
        whole = (tensor.name, (1 << twin.untyped_storage().nbytes() // 4) - 1)
        pageable = tensor.agent == HOST and not tensor.pinned
        given = [Uses(HOST, (), (whole,), certain=False)] if pageable else []
        self.add(Step(f"del {tensor.name}", (*given, order.Free(tensor.name))))
        self.tensors.remove(tensor)
        if tensor.on_device and not tensor.index and self.rng.random() < 0.7:
            self.stream = tensor.agent
            self.full(tensor.agent, tuple(twin.shape))  # often gets the same memory


ACTIONS = [
    (_Maker.compute, 8), (_Maker.in_place, 5), (_Maker.index, 3), (_Maker.masked, 0.5),
    (_Maker.gradient, 0.7), (_Maker.upload, 5), (_Maker.upload_pageable, 1), (_Maker.download, 4),
    (_Maker.pin, 0.5), (_Maker.load, 0.3), (_Maker.capture, 0.05), (_Maker.empty, 0.1),
    (_Maker.write, 3), (_Maker.read, 2), (_Maker.look, 1), (_Maker.drop, 4),
]
