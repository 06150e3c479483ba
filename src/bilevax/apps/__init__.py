"""Tools that are used as they are, with scikit-learn's conventions."""

try:
    from .._models.episodes import Sampler as TaskSampler  # noqa: F401
    from ._few_shot import AdaptedClassifier as AdaptedClassifier
    from ._few_shot import FewShotLearner as FewShotLearner
    from ._hypercleaner import HyperCleaner as HyperCleaner
    from ._task_interaction import TaskInteraction as TaskInteraction
    from ._trusted import NoTrustedRowsWarning as NoTrustedRowsWarning
    from ._trusted import ScaleWarning as ScaleWarning
except ModuleNotFoundError as error:
    if error.name != "sklearn":
        raise
    raise ImportError(
        "bilevax.apps needs scikit-learn: in a clone of bilevax, pip install '.[tools]'."
    ) from error
