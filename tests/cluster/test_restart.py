"""The energy of a cluster, asked of Prometheus, while a daemon is killed and comes back.

Every machine draws constant power, so that the truth is watts times seconds.
"""

import dataclasses
import time

import pytest

from conftest import PACKAGE_WATTS, SCRAPE_S, WATTS, wait_for

KILLED = 1
# What one reading may lag: the update of the counter, the daemon's poll, and the way to Prometheus.
LAG_S = 0.5


@dataclasses.dataclass
class Story:
    begin: float  # The first scrape of all nodes.
    killed: float
    restarted: float  # When the new daemon was started ...
    answered: float  # ... and when it answered.
    end: float
    window_s: int


def gpu(cluster, n: int) -> str:
    return f'zeus_energy_joules_total{{instance="{cluster.instance(n)}",domain="gpu"}}'


@pytest.fixture(scope="module")
def story(cluster) -> Story:
    wait_for("Prometheus", lambda: cluster.get("http://10.77.0.1:9090/-/ready"))
    wait_for("a scrape of each", lambda: len(cluster.query('zeus_energy_joules_total{domain="gpu"}')) == len(WATTS))
    begin = time.time()
    time.sleep(6)
    cluster.kill(KILLED)
    killed = time.time()
    time.sleep(5)
    restarted = time.time()
    cluster.restart(KILLED)
    answered = time.time()
    time.sleep(6)
    end = time.time()
    return Story(begin, killed, restarted, answered, end, round(end - begin))


def rise(samples: list[tuple[float, float]]) -> float:
    """What a counter gained: after a fall it had begun at 0."""
    return sum(b - a if b >= a else b for (_, a), (_, b) in zip(samples, samples[1:]))


@pytest.mark.parametrize("n", [n for n in range(len(WATTS)) if n != KILLED])
def test_a_node_that_runs_counts_watts_times_seconds(cluster, story, n):
    samples = cluster.samples(gpu(cluster, n), story.end, story.window_s)
    seconds = samples[-1][0] - samples[0][0]
    assert seconds >= story.window_s - 2 * SCRAPE_S
    assert rise(samples) == pytest.approx(WATTS[n] * seconds, abs=WATTS[n] * LAG_S)


# field failures 53, 170: a total that only rises, scraped every second, whatever happens between.
def test_a_restart_counts_no_joule_twice_and_loses_only_the_time_between(cluster, story):
    samples = cluster.samples(gpu(cluster, KILLED), story.end, story.window_s)
    before = [t for t, _ in samples if t <= story.killed]
    falls = [i for i in range(1, len(samples)) if samples[i][1] < samples[i - 1][1]]
    assert len(falls) == 1 and samples[falls[0]][0] > story.restarted
    # From the first scrape to the last before the kill, and from the new daemon's start to the end.
    least = (before[-1] - samples[0][0]) + (samples[-1][0] - story.answered)
    most = (before[-1] - samples[0][0]) + (samples[-1][0] - story.restarted)
    watts = WATTS[KILLED]
    assert watts * (least - LAG_S) <= rise(samples) <= watts * (most + LAG_S)
    assert story.killed - before[-1] <= 2 * SCRAPE_S, "not more than a scrape is lost at the end"


def test_the_downtime_is_visible_and_shows_no_old_values(cluster, story):
    up = cluster.samples(f'up{{instance="{cluster.instance(KILLED)}"}}', story.end, story.window_s)
    down = [t for t, v in up if v == 0]
    assert story.killed - SCRAPE_S <= down[0] and down[-1] <= story.answered
    assert len(down) * SCRAPE_S == pytest.approx(story.restarted - story.killed, abs=2 * SCRAPE_S)
    for metric in ("zeus_energy_joules_total", "zeus_power_watts", "zeus_up"):
        shown = cluster.query(f'{metric}{{instance="{cluster.instance(KILLED)}"}}', down[-1])
        assert shown == [], f"{metric} is repeated while nobody reads it"


def test_promql_adds_up_the_cluster(cluster, story):
    parts = [cluster.samples(gpu(cluster, n), story.end, story.window_s) for n in range(len(WATTS))]
    total = sum(map(rise, parts))
    asked = cluster.value(f'sum(increase(zeus_energy_joules_total{{domain="gpu"}}[{story.window_s}s]))', story.end)
    # increase() extrapolates to the edges of the window, by less than a scrape each.
    assert total <= asked * (1 + 1e-9) and asked <= total + 2 * SCRAPE_S * 1.1 * sum(WATTS)
    truth = sum(WATTS) * story.window_s - WATTS[KILLED] * (story.answered - story.killed)
    assert asked == pytest.approx(truth, abs=(SCRAPE_S + LAG_S) * sum(WATTS))


def test_the_rules_see_what_the_nodes_draw(cluster, story):
    for n in (0, 2):
        rate = cluster.value(
            f'instance:zeus_energy_joules:rate1m{{instance="{cluster.instance(n)}"}}', story.end
        )
        # The minute is not full: the rate is that of the part that was seen, over the whole minute.
        seen = cluster.value(f"count_over_time({gpu(cluster, n)}[1m])", story.end) * SCRAPE_S
        whole = (WATTS[n] + PACKAGE_WATTS) * min(seen, 60) / 60
        assert rate == pytest.approx(whole, abs=3 * (WATTS[n] + PACKAGE_WATTS) / 60)
    assert cluster.value(
        f'instance:zeus_downtime_seconds:1h{{instance="{cluster.instance(KILLED)}"}} > bool 0', story.end
    )


def test_every_device_is_named_and_every_reading_says_that_it_is_simulated(cluster, story):
    for n in range(len(WATTS)):
        here = f'{{instance="{cluster.instance(n)}"}}'
        assert cluster.value(f"sum(zeus_up{here})", story.end) == 2
        assert cluster.value(f"count(zeus_energy_joules_total{here})", story.end) == 2
        for result in cluster.query(f"zeus_energy_joules_total{here}", story.end):
            assert result["metric"]["simulated"]
