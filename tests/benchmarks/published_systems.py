"""What others report of systems of equations, for `bench_systems.py` to print.

- JSINDy: Hsu et al., arXiv:2511.18555, and the results stored with its code,
  github.com/AHsu98/jsindy (MIT). A state error is the root of the mean square of the
  errors of the states, each divided by the variance of the state; of the cubic
  oscillator the variance is that of both states together.
- ODR-BINDy: arXiv:2507.23426, with figures stored in the same place.
- Weak ensemble SINDy: a run of PySINDy stored there, 250 test functions, 50 models.

Errors of coefficients are norm(found - true) / norm(true) over all terms of the library
and all equations. All of these tune noise weights, kernels and thresholds by hand for
each problem.
"""

import numpy as np

LORENZ_NOISE_RATIOS = (
    0.025,
    0.05,
    0.075,
    0.1,
    0.125,
    0.15,
    0.175,
    0.2,
    0.225,
    0.25,
    0.275,
    0.3,
    0.325,
    0.35,
    0.375,
    0.4,
)
LORENZ_TIMES = (4, 5, 6, 7, 8, 9, 10)

PUBLISHED = {
    "lorenz_scarce": "JSINDy: nrmse 0.0235, coefficients 0.040; PySINDy: wrong terms",
    "lorenz_streams": "JSINDy: nrmse 0.0057, coefficients 0.020",
    "lorenz_hidden": "JSINDy: nrmse of x and y 0.0068",
    "lotka_volterra": "JSINDy: coefficients 0.159 (0.932, 0.331, 0.470, 0.129), run "
    "with noise 0.2",
    "cubic_oscillator_0.02": "JSINDy, median of 32: nrmse 0.0033, coefficients 0.0055",
    "cubic_oscillator_0.04": "JSINDy, median of 32: nrmse 0.0065, coefficients 0.0104",
    "cubic_oscillator_0.08": "JSINDy, median of 32: nrmse 0.0133, coefficients 0.0214",
    "cubic_oscillator_0.16": "JSINDy, median of 32: nrmse 0.0263, coefficients 0.0448",
    "cubic_oscillator_0.32": "JSINDy, median of 32: nrmse 0.0518, coefficients 0.0873",
    "cubic_oscillator_0.64": "JSINDy, median of 32: nrmse 0.1074, coefficients 0.2342",
    "coupled_duffing": "JSINDy: nrmse 0.0355, coefficients 0.036 (powers to degree 3 "
    "without products)",
    "van_der_pol": "JSINDy: nrmse 0.045, coefficients 0.186",
}

# Fractions of 128 draws in which the terms are exactly the true ones, and mean errors
# of the coefficients: rows are ratios of noise, columns the lengths of the trajectory.
_ODR_BINDY_SUPPORT = """
    1 1 1 1 1 0.9922 1
    1 1 1 1 1 0.9922 1
    1 1 1 1 1 0.9922 1
    1 1 1 1 1 0.9922 1
    0.9922 1 1 1 1 0.9922 1
    0.9453 0.9922 1 0.9922 1 0.9922 1
    0.7969 0.9531 0.9766 0.9922 0.9844 0.9922 1
    0.5703 0.8672 0.9141 0.9375 0.9766 0.9922 1
    0.4062 0.7734 0.8672 0.8906 0.9609 0.9922 0.9844
    0.3125 0.6641 0.7812 0.875 0.9375 0.9844 0.9453
    0.1719 0.5781 0.6875 0.7812 0.9297 0.9766 0.9766
    0.1406 0.4375 0.5391 0.7188 0.8828 0.9453 0.9219
    0.0938 0.3203 0.4141 0.5078 0.7656 0.8672 0.8906
    0.0391 0.2266 0.2656 0.3828 0.6875 0.8047 0.8438
    0.0391 0.1172 0.25 0.3047 0.5312 0.7031 0.8203
    0.0391 0.1484 0.1875 0.25 0.375 0.6406 0.7344
"""
_ODR_BINDY_ERROR = """
    0.00422 0.00416 0.00309 0.00306 0.00242 0.00242 0.00216
    0.00844 0.00832 0.00611 0.00611 0.00483 0.00485 0.00432
    0.01264 0.01248 0.00927 0.00918 0.00722 0.00728 0.00649
    0.01684 0.01664 0.01236 0.01225 0.00964 0.00972 0.00865
    0.0215 0.0208 0.01546 0.01532 0.01203 0.01215 0.01085
    0.03518 0.02561 0.01855 0.01905 0.01434 0.01459 0.013
    0.06203 0.03839 0.02921 0.02212 0.02094 0.01704 0.01519
    0.1127 0.05486 0.06266 0.05249 0.02379 0.01949 0.01737
    0.14027 0.07957 0.05142 0.06524 0.02959 0.02194 0.02128
    0.1557 0.10542 0.10293 0.0647 0.03437 0.02611 0.03022
    0.28883 0.17806 0.12087 0.14784 0.04194 0.031 0.02783
    0.47764 0.32615 0.21576 0.20724 0.04817 0.10022 0.05172
    0.82987 0.55235 0.23425 0.25089 0.08808 0.06561 0.05801
    0.73272 0.79767 0.91199 0.31823 0.09155 0.1582 0.07144
    1.29345 1.29227 0.39278 0.55897 0.15534 0.19953 0.22921
    1.68474 1.65596 0.95602 0.94536 0.30123 0.19952 0.32484
"""
_WEAK_SINDY_SUPPORT = """
    0.3516 0.2344 0.2812 0.25 0.3047 0.4453 0.4688
    0.2031 0.2266 0.2656 0.2734 0.2812 0.2578 0.1953
    0.0859 0.1328 0.1328 0.1094 0.1016 0.125 0.0938
    0.0078 0.0391 0.0703 0.0625 0.0547 0.0391 0.0469
    0.0078 0.0156 0.0312 0.0312 0.0078 0.0312 0.0312
    0 0.0156 0 0.0156 0.0156 0.0234 0.0234
    0 0 0 0.0078 0.0156 0 0.0312
    0 0 0 0 0 0.0156 0.0078
    0 0.0078 0 0.0234 0 0.0078 0
    0 0.0078 0 0.0078 0 0.0156 0
    0 0.0078 0 0 0 0.0078 0.0078
    0 0 0 0 0 0 0
    0 0 0 0 0 0.0078 0.0078
    0 0 0 0 0 0.0078 0
    0 0 0 0 0 0 0.0078
    0 0 0 0 0 0 0.0078
"""
_WEAK_SINDY_ERROR = """
    0.0613 0.0719 0.0697 0.0741 0.0703 0.0555 0.054
    0.0591 0.065 0.0614 0.058 0.0691 0.0718 0.0766
    0.0754 0.0775 0.0735 0.0901 0.0802 0.0835 0.0865
    0.102 0.0972 0.1123 0.1128 0.1173 0.1214 0.108
    0.1196 0.1341 0.1524 0.1689 0.1392 0.1214 0.1404
    0.1472 0.1581 0.1934 0.2152 0.1756 0.163 0.1662
    0.1776 0.2227 0.23 0.2224 0.2224 0.2218 0.1948
    0.2583 0.2585 0.2746 0.2743 0.2953 0.2654 0.2568
    0.3137 0.3011 0.3232 0.3351 0.3181 0.2864 0.309
    0.4186 0.3554 0.3799 0.4295 0.3488 0.3341 0.3534
    0.4782 0.4279 0.4705 0.4975 0.4366 0.3469 0.4182
    0.5969 0.5383 0.57 0.576 0.5079 0.4244 0.4179
    0.6412 0.6308 0.6847 0.6426 0.5386 0.4341 0.5005
    0.6929 0.6514 0.7517 0.7753 0.6317 0.5016 0.5204
    0.7603 0.6709 0.8484 0.8076 0.7251 0.611 0.5886
    0.8306 0.8263 0.8913 0.8184 0.7863 0.6602 0.6327
"""
# For T = 10, read from a figure.
_JSINDY_SUPPORT = {0.05: 1.0, 0.1: 0.9, 0.15: 0.8, 0.2: 0.7, 0.3: 0.55, 0.4: 0.4}


def heat_map_figures(t_end, ratio):
    """What is published of one cell of the Lorenz heat map, as text."""
    row, column = LORENZ_NOISE_RATIOS.index(ratio), LORENZ_TIMES.index(t_end)

    def entry(table):
        return np.fromstring(table, sep=" ").reshape(-1, len(LORENZ_TIMES))[row, column]

    text = (
        f"ODR-BINDy: support {entry(_ODR_BINDY_SUPPORT):.2f}, coefficients "
        f"{entry(_ODR_BINDY_ERROR):.4f}; weak ensemble SINDy: "
        f"{entry(_WEAK_SINDY_SUPPORT):.2f}, {entry(_WEAK_SINDY_ERROR):.4f}"
    )
    if t_end == 10 and ratio in _JSINDY_SUPPORT:
        text += f"; JSINDy: support {_JSINDY_SUPPORT[ratio]:.2f}"
    return text
