"""Makes a JSON schema of each kind from Kubernetes' OpenAPI document, as kubeconform wants them.

    schemas.py SWAGGER FOLDER

A schema has the definitions that it needs and no others. Objects with named fields have no further ones.
"""

import json
import pathlib
import re
import sys

swagger, folder = sys.argv[1], pathlib.Path(sys.argv[2])
definitions = json.loads(pathlib.Path(swagger).read_text())["definitions"]
REFERENCE = "#/definitions/"


def references(value):
    """The names of all definitions that a value refers to."""
    return re.findall(f'"\\$ref": "{REFERENCE}([^"]+)"', json.dumps(value))


def closed(definition):
    if "properties" in definition:
        definition["additionalProperties"] = False
    # A field that may be a number or a text.
    if definition.get("format") == "int-or-string":
        definition = {"type": ["integer", "string"]}
    return definition


for name, definition in definitions.items():
    definitions[name] = closed(definition)
# A quantity may be written as a number.
definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}

for name, definition in definitions.items():
    for kind in definition.get("x-kubernetes-group-version-kind", []):
        needed, waiting = {}, references(definition)
        while waiting:
            reference = waiting.pop()
            if reference not in needed:
                needed[reference] = definitions[reference]
                waiting += references(definitions[reference])
        group = kind["group"].split(".")[0]
        file = "-".join(part for part in (kind["kind"], group, kind["version"]) if part).lower()
        (folder / f"{file}.json").write_text(json.dumps({**definition, "definitions": needed}))
