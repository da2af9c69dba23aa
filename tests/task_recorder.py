"""A callback of scikit-learn that keeps what it is told."""


class TaskRecorder:
    """The tasks that begin and end: of which estimator, their names and numbers."""

    def __init__(self):
        self.tasks, self.ended = [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.tasks.append(("begin", context.task_name, context.max_subtasks))

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        self.ended.append((type(estimator).__name__, context.task_name))
        self.tasks.append(("end", context.task_name, context.max_subtasks))
