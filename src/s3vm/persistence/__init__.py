"""Saving, compressing and exporting fitted models: `s3vm.save`, `s3vm.load`, `s3vm.compress`, `s3vm.to_onnx`."""
