"""requests_get.py URL: prints the status and reason of the response, or the error, as a program with requests sees it."""

import sys

import requests

try:
    answer = requests.get(sys.argv[1], timeout=60)
    print(answer.status_code, answer.headers.get("Robotsproxy-Reason", ""))
except requests.exceptions.ProxyError as error:
    print("ProxyError", error)
