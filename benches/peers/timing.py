"""How peers in Python are timed, and what they say: one line of JSON for each figure."""
import json
import resource
import statistics
import time

SHARES = (("p90", 0.9, 10), ("p99", 0.99, 100), ("p999", 0.999, 1000))


def say(**line):
    print(json.dumps(line), flush=True)


def core_seconds():
    """What the threads of this process have used so far, in user and system mode."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Samples:
    """Rounds of the same work: the first, and the sorted seconds of those that count."""

    def __init__(self, first, seconds, cores):
        self.first, self.seconds, self.cores = first, sorted(seconds), cores

    @property
    def median(self):
        return statistics.median(self.seconds)

    def spread(self, convert):
        """The best and the worst round, and what 90, 99 and 99.9% of them reach, if enough do."""
        count = len(self.seconds)
        marks = {"best": self.seconds[0]}
        marks.update((name, self.seconds[int(part * count)])
                     for name, part, fewest in SHARES if count >= fewest)
        marks["worst"] = self.seconds[-1]
        return {name: convert(seconds) for name, seconds in marks.items()}

    def say(self, name, unit, convert, peer, method):
        """The figure, and what the first round reached."""
        say(name=name, value=convert(self.median), unit=unit, peer=peer, method=method,
            samples=len(self.seconds), spread=self.spread(convert))
        say(name=f"{name}.first", value=convert(self.first), unit=unit, peer=peer,
            method="the first round of the same, in this process")

    def say_cores(self, name, gigabytes, peer):
        say(name=f"{name}.core_seconds", value=self.cores / gigabytes, unit="s/GB", peer=peer,
            method="seconds of all threads of the process, by getrusage, for a GB")


def sample(work, synchronize, shortest=0.4, fewest=5, most=200, warm=2, prepare=lambda: None):
    """Enough rounds of `work`, each until `synchronize` returns. The first `warm` do not count."""
    first, seconds, cores = None, [], []
    for count in range(warm + most):
        prepare()
        synchronize()
        used, start = core_seconds(), time.perf_counter()
        result = work()
        synchronize()
        took = time.perf_counter() - start
        used = core_seconds() - used
        del result
        first = first or took
        if count >= warm:
            seconds.append(took)
            cores.append(used)
            if len(seconds) >= fewest and sum(seconds) > shortest:
                break
    return Samples(first, seconds, statistics.mean(cores))
