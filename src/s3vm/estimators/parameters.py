"""Settings of a configured solver, kernel or loss as parameters of the estimator, such as ``solver__max_iter``."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, Self

from sklearn.base import BaseEstimator

from s3vm._utils.settings import invalid


class NestedParameters(BaseEstimator):
    """A `BaseEstimator` some of whose parameters are frozen dataclasses, whose fields are parameters, too."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; with `deep`, those of a configured solver, kernel or loss, too."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            parts = [(name, part) for name, part in params.items() if _is_configured(part)]
            params |= {
                f"{name}__{field.name}": getattr(part, field.name) for name, part in parts for field in fields(part)
            }
        return params

    def set_params(self, **params: Any) -> Self:
        """Sets parameters by name: ``C=1``, and with ``solver=TSG()`` also ``solver__max_iter=100``."""
        super().set_params(**{name: value for name, value in params.items() if "__" not in name})
        nested: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            part, _, setting = name.partition("__")
            if setting:
                nested.setdefault(part, {})[setting] = value
        for part, settings in nested.items():
            configured = super().get_params(deep=False).get(part)
            known = {field.name for field in fields(configured)} if _is_configured(configured) else set()
            for setting in settings.keys() - known:
                example = f"settings of a configured {part}, not {configured!r}: {sorted(known)}"
                raise invalid(f"{part}__{setting}", settings[setting], example)
            setattr(self, part, replace(configured, **settings))
        return self


def _is_configured(part: Any) -> bool:
    return is_dataclass(part) and not isinstance(part, type)
