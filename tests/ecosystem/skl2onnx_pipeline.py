"""skl2onnx: `s3vm.register_onnx` lets it convert a pipeline with steps of any kind."""

import numpy as np
import onnxruntime
import pandas as pd
import skl2onnx
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

import s3vm

X, y = load_iris(return_X_y=True)
table = pd.DataFrame({"length": X[:, 2], "width": X[:, 3], "sepal": np.where(X[:, 0] > 5.8, "long", "short")})
table = table.astype({"length": "float32", "width": "float32"})
labels = np.where(np.arange(150) % 4 == 0, np.array(["setosa", "versicolor", "virginica"])[y], "?")
columns = make_column_transformer((MinMaxScaler(), ["length", "width"]), (OneHotEncoder(), ["sepal"]))
model = make_pipeline(columns, s3vm.S3VMClassifier(unlabeled="?", random_state=0)).fit(table, labels)

s3vm.register_onnx()
graph = skl2onnx.to_onnx(model, table[:1], options={"zipmap": False})
session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
label, probabilities = session.run(None, {name: table[[name]].to_numpy() for name in table})
np.testing.assert_allclose(probabilities, model.predict_proba(table), atol=1e-5)
np.testing.assert_array_equal(label, model.predict(table))
