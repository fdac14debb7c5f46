"""Runs the control database's migrations on the connection that ``state`` hands over."""

from alembic import context

from migrator.state.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table="migrator_state_version",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
