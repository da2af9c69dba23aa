"""A physics-informed network as a baseline, of the PINN-SR kind.

After Chen, Liu, Sun, Physics-informed learning of governing equations from scarce data,
Nature Communications 12, 2021: a network for the state and a sparse combination of the
terms of a dictionary are trained together on the data and on the residual of the
equation; in between, terms are taken out by sparse regression on the network's
derivatives. The network is the published one for these problems, eight layers of
twenty; weights and numbers of iterations, of which only some are published, are those
below for every problem.
"""

import numpy as np
from sindy_baseline import SindyEquation, monomial_powers, sparse_regression

from keql.operators import parse_operator

LAYERS, WIDTH = 8, 20
# Steps of Adam and of L-BFGS: with all terms; after terms were taken out.
FIRST_STEPS, LATER_STEPS = (5000, 2000), (1000, 1000)
LEARNING_RATE = 1e-3
# How often terms are taken out.
ROUNDS = 3


def available():
    """Whether PyTorch is there; says how to get it if not."""
    try:
        import torch  # noqa: F401
    except ImportError:
        print("PINN-SR is left out: pip install 'keql[pinn]'")
        return False
    return True


class PinnSR:
    """A network for the state and a sparse equation: P(u, ...) + known part = 0.

    Parameters
    ----------
    problem : dict
        `operators`, `known_part` (an operator), `collocation_points` and `variables`,
        as the estimators take them.
    degree : int, default=2
        Of the dictionary, all monomials in the operators.
    random_state : int, default=0
        Of the first weights.
    """

    def __init__(self, problem, degree=2, random_state=0):
        self.problem = problem
        self.degree = degree
        self.random_state = random_state

    def fit(self, X, y):
        """Train on observations `y` (n,) at points `X` (n, d)."""
        import torch

        torch.manual_seed(self.random_state)
        torch.set_num_threads(1)  # as all others, with which it runs side by side
        names = (*self.problem["operators"], self.problem["known_part"])
        variables = self.problem["variables"]
        self.orders = [parse_operator(name, variables).terms[0][0] for name in names]
        self.powers = monomial_powers(len(names) - 1, self.degree)
        points = np.asarray(self.problem["collocation_points"])
        everywhere = np.vstack([X, points])
        self.low, self.high = everywhere.min(axis=0), everywhere.max(axis=0)
        self.size = float(np.sqrt(np.mean(y**2)))
        sizes = [WIDTH] * LAYERS
        layers = []
        for n_in, n_out in zip([X.shape[1], *sizes[:-1]], sizes, strict=True):
            layers += [torch.nn.Linear(n_in, n_out), torch.nn.Tanh()]
        self.net = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1)).double()
        self.coefficients = torch.zeros(len(self.powers), dtype=torch.double)
        self.coefficients.requires_grad_()
        self.mask = torch.ones(len(self.powers), dtype=torch.double)
        tensors = [torch.tensor(a, dtype=torch.double) for a in (X, y, points)]
        self._train(*tensors, FIRST_STEPS)
        for _ in range(ROUNDS):
            self._take_out_terms(tensors[-1])
            self._train(*tensors, LATER_STEPS)
        found = (self.coefficients * self.mask).detach().numpy()
        self.equation = SindyEquation(self.powers, found, X.shape[1])
        return self

    def predict(self, X):
        """Values (n,) of the state at points `X` (n, d)."""
        import torch

        with torch.no_grad():
            return self._state(torch.tensor(X, dtype=torch.double)).numpy()

    def _state(self, points):
        import torch

        low, high = torch.tensor(self.low), torch.tensor(self.high)
        scaled = 2 * (points - low) / (high - low) - 1
        return self.size * self.net(scaled)[:, 0]

    def _derivatives(self, points):
        """Operators and the known part, of shape (n, Q + 1)."""
        import torch

        points = points.clone().requires_grad_()
        known = {(0,) * points.shape[1]: self._state(points)}

        def derivative(order):
            if order not in known:
                axis = int(np.argmax(order))
                lower = tuple(a - (i == axis) for i, a in enumerate(order))
                slopes = torch.autograd.grad(
                    derivative(lower).sum(), points, create_graph=True
                )[0]
                for i in range(points.shape[1]):
                    raised = tuple(a + (i == j) for j, a in enumerate(lower))
                    known.setdefault(raised, slopes[:, i])
            return known[order]

        return torch.stack([derivative(order) for order in self.orders], 1)

    def _dictionary(self, columns):
        import torch

        powers = torch.tensor(self.powers)
        return torch.prod(columns[:, None, :] ** powers, 2)

    def _loss(self, X, y, points):
        """Misfit of the data, and of the equation, in units of their sizes."""
        D = self._derivatives(points)
        terms = self._dictionary(D[:, :-1]) @ (self.coefficients * self.mask)
        misfit = (self._state(X) - y).square().mean() / self.size**2
        residual = (D[:, -1] + terms).square().mean()
        return misfit + residual / self.size**2

    def _train(self, X, y, points, steps):
        import torch

        parameters = [*self.net.parameters(), self.coefficients]
        adam = torch.optim.Adam(parameters, lr=LEARNING_RATE)
        for _ in range(steps[0]):
            adam.zero_grad()
            self._loss(X, y, points).backward()
            adam.step()
        newton = torch.optim.LBFGS(
            parameters,
            max_iter=steps[1],
            tolerance_grad=1e-10,
            tolerance_change=1e-14,
            history_size=50,
            line_search_fn="strong_wolfe",
        )

        def closure():
            newton.zero_grad()
            loss = self._loss(X, y, points)
            loss.backward()
            return loss

        newton.step(closure)

    def _take_out_terms(self, points):
        """Sparse regression on the derivatives of the network."""
        import torch

        D = self._derivatives(points).detach()
        Theta = self._dictionary(D[:, :-1]).numpy()
        found = sparse_regression(Theta, -D[:, -1].numpy())
        with torch.no_grad():
            self.coefficients.copy_(torch.tensor(found))
            self.mask.copy_(torch.tensor((found != 0).astype(float)))
