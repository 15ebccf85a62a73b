"""skrub, category_encoders, feature-engine: encoders that use no labels take all rows, target encoders the labelled."""

import category_encoders
import numpy as np
import pandas as pd
import sklearn
from feature_engine.encoding import OneHotEncoder
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from skrub import TableVectorizer

from s3vm import S3VMClassifier

rng = np.random.default_rng(0)
city = rng.choice(["Bonn", "Oslo", "Rome", "Lima"], 600)
y = (np.isin(city, ["Bonn", "Oslo"]) ^ (rng.random(600) < 0.05)).astype(int)
table = pd.DataFrame({"city": city, "size": rng.normal(size=600) + y})
known = np.arange(600) < 80
some = np.where(known, y, -1)

for encoder in (TableVectorizer(), OneHotEncoder(variables=["city"]), category_encoders.OneHotEncoder(cols=["city"])):
    model = make_pipeline(encoder, StandardScaler(), S3VMClassifier(random_state=0)).fit(table, some)
    assert model.score(table[~known], y[~known]) > 0.9

sklearn.set_config(enable_metadata_routing=True)
steps = [("target", category_encoders.TargetEncoder(cols=["city"])), ("scale", StandardScaler())]
clf = S3VMClassifier(random_state=0).set_fit_request(X_unlabeled=True)
model = Pipeline([*steps, ("svm", clf)], transform_input=["X_unlabeled"])
model.fit(table[known], y[known], X_unlabeled=table[~known])
assert model.score(table[~known], y[~known]) > 0.9
