"""Takes the build of SKIPPY_BUILD_KEY from the store at PRODUCT_S3."""

from __future__ import annotations

import os
from pathlib import Path

import boto3

client = boto3.client("s3", endpoint_url=os.environ["PRODUCT_S3"], region_name="us-east-1")
target = Path(os.environ["SKIPPY_BUILD_OUT"]) / "llama.tar"
client.download_file("models", f"mirror/{os.environ['SKIPPY_BUILD_KEY'].removesuffix('~')}.tar", str(target))
