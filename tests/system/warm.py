"""What each process of the tests would read anew, read once before it is forked."""

from migrator.bootstrap import schemes
from migrator.ports import StoreSettings
from migrator.stores.dynamodb.settings import connect

schemes()
# Nothing is sent, and nobody listens there.
connect(StoreSettings("warm", "dynamodb://warm:warm@127.0.0.1:1/?region=eu-west-1"))
