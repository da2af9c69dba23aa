"""Laws of the sciences, of the family unseen: experiments, reactors, orbits."""

from dataclasses import replace

import numpy as np
from further_problems import swings
from scipy.integrate import solve_ivp
from suite_problems import SuiteProblem, ode


def experiments(rate, initial, t_end, n):
    """One state whose slope is rate(t, u), from several initial values."""
    found = [ode(rate, [u], t_end, n) for u in initial]
    numbers = np.arange(len(found))

    def labelled(tables):
        sizes = [len(table) for table in tables]
        return np.column_stack([np.concatenate(tables), np.repeat(numbers, sizes)])

    return replace(
        found[0],
        settings=found[0].settings | {"function_column": 1},
        X=labelled([each.X for each in found]),
        y=np.concatenate([each.y for each in found]),
        X_test=labelled([each.X_test for each in found]),
        y_test=np.concatenate([each.y_test for each in found]),
        features=np.concatenate([each.features for each in found]),
        parts=np.concatenate([each.parts for each in found]),
    )


def doses():
    return experiments(lambda t, u: -3 * u / (2 + u), [1.0, 5.0, 12.0], 6, 15)


def bound():
    return experiments(
        lambda t, u: 2 * u**4 / (1 + u**4) - 0.9 * u, [0.5, 0.9, 3.0], 6, 15
    )


def seasons():
    return experiments(lambda t, u: -u + 0.5 * u**2 * np.sin(t), [1.0, 0.4], 8, 20)


def fireflies():
    return experiments(lambda t, u: 1.3 - 0.9 * np.sin(u), [0.0, 2.0], 12, 30)


def radiation():
    return experiments(lambda t, u: -0.02 * (u**4 - 1), [3.0, 0.2], 8, 15)


def tanks():
    return experiments(lambda t, u: 1 - 0.8 * u**0.5, [0.1, 4.0], 8, 15)


def system(rates, names, initial, t_end, n):
    """States whose slopes are functions of them, seen at n equal times."""
    solution = solve_ivp(
        lambda t, y: rates(*y),
        (0, t_end),
        initial,
        "LSODA",
        dense_output=True,
        rtol=1e-11,
        atol=1e-13,
    ).sol
    t, t_test = np.linspace(0, t_end, n), np.linspace(0, t_end, 500)
    states = solution(t_test)
    settings = {
        "operators": names,
        "known_part": tuple(f"{name}_t" for name in names),
        "variables": ("t",),
        "states": names,
    }
    return SuiteProblem(
        settings,
        t[:, None],
        solution(t).T,
        t_test[:, None],
        states.T,
        features=np.column_stack([t_test, *states]),
        parts=-np.array([rates(*row) for row in states.T]),
    )


def reactor():
    """A concentration and the temperature that its reaction raises."""

    def rates(c, T):
        reacted = c * np.exp(-6 / T)
        return [1 - c - 20 * reacted, 2.35 - 1.5 * T + 30 * reacted]

    return system(rates, ("c", "T"), [0.9, 1.1], 4, 30)


def predators():
    """Those of Leslie and Gower, and prey whose predators get enough, after May."""

    def rates(n, p):
        return [n * (1 - n) - n * p / (n + 0.1), 0.3 * p * (1 - p / n)]

    return system(rates, ("n", "p"), [0.6, 0.3], 40, 60)


def orbit():
    def attracted(place, speed):
        return -place / np.linalg.norm(place) ** 3

    return swings(attracted, ("x", "y"), [1.0, 0.0, 0.0, 1.15], 9, 50)


def orbit_in_space():
    def attracted(place, speed):
        return -place / np.linalg.norm(place) ** 3

    initial = [1.0, 0.0, 0.1, 0.0, 1.1, 0.2]
    return swings(attracted, ("x", "y", "z"), initial, 9, 50)


def slowed_charge():
    def attracted(place, speed):
        return -place / np.linalg.norm(place) ** 3 - 0.05 * speed

    return swings(attracted, ("x", "y"), [1.0, 0.0, 0.0, 1.2], 9, 50)


def ball():
    def falling(place, speed):
        return np.array([0.0, -9.81]) - 0.1 * speed * np.linalg.norm(speed)

    return swings(falling, ("x", "y"), [0.0, 0.0, 20.0, 15.0], 2.5, 30)


LAWS = {
    "predators": predators,
    "three doses": doses,
    "three doses 2%": doses,
    "bound molecules": bound,
    "seasons": seasons,
    "fireflies 2%": fireflies,
    "radiation": radiation,
    "radiation 2%": radiation,
    "tanks 2%": tanks,
    "reactor": reactor,
    "orbit": orbit,
    "orbit 2%": orbit,
    "orbit in space 2%": orbit_in_space,
    "slowed charge 2%": slowed_charge,
    "ball": ball,
    "ball 2%": ball,
}
