"""The service that BentoML hosts."""

from fifth.serving import PredictBody
from pliant.serving.bento.hosting import host_app, hosted
from pliant.serving.http.app import predicting_app

WordsService = hosted("words", __name__, "Classifies texts. See /docs.", host_app(predicting_app("Words", PredictBody)))
