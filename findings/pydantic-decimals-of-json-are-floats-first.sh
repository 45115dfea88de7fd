#!/usr/bin/env bash
# pydantic 2.14.4 reads a JSON number as a float before it makes the Decimal that the type of the field
# asks for: digits beyond the 17th are others, and the zero at the end of 1.10 is gone, without an error.
# max_digits and decimal_places do not help: they judge what is left, so they also take an amount with
# more places than they allow. msgspec 0.22.0, with the same annotation, and json with parse_float keep
# every digit; pydantic does so for integers and for numbers that are text.
# Expected: a Decimal of the digits that were sent, as from msgspec.
# Seen:
#   12345678901234567.89 pydantic 12345678901234568    msgspec 12345678901234567.89
#   0.123456789012345678 pydantic 0.12345678901234568  msgspec 0.123456789012345678
#   1.10                 pydantic 1.1                  msgspec 1.10
#   1000000000000000.019 of at most 2 places: pydantic 1000000000000000
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pydantic==2.14.4 msgspec==0.22.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
from decimal import Decimal
from typing import Annotated
import msgspec, pydantic

class Model(pydantic.BaseModel):
    amount: Decimal

class Struct(msgspec.Struct):
    amount: Decimal

class Bounded(pydantic.BaseModel):
    amount: Annotated[Decimal, pydantic.Field(decimal_places=2)]

seen = []
for text in ("12345678901234567.89", "0.123456789012345678", "1.10"):
    content = f'{{"amount":{text}}}'
    model, struct = Model.model_validate_json(content), msgspec.json.decode(content, type=Struct)
    seen.append((str(model.amount), str(struct.amount)))
    print(f"{text:20} pydantic {seen[-1][0]:20} msgspec {seen[-1][1]}")
    assert str(Model.model_validate_json(f'{{"amount":"{text}"}}').amount) == text, "it has changed"
long = "1000000000000000.019"
bounded = Bounded.model_validate_json(f'{{"amount":{long}}}').amount
print(f"{long} of at most 2 places: pydantic {bounded}")
assert seen == [
    ("12345678901234568", "12345678901234567.89"),
    ("0.12345678901234568", "0.123456789012345678"),
    ("1.1", "1.10"),
], "it has changed"
assert bounded == Decimal("1000000000000000.0"), "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
