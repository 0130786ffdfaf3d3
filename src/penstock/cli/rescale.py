"""`penstock rescale`: a node's state, spread over another number of buckets."""

from pathlib import Path

import click

from penstock.cli.chosen import find_node, node_folder, node_options
from penstock.cli.display import plural


@click.command()
@click.argument("node")
@click.argument("buckets", type=click.IntRange(1))
@node_options
def command(node: str, buckets: int, app: str | None, data: Path) -> None:
    """Spread what NODE keeps over BUCKETS parts, while its app does not run.

    Each bucket is worked on by one core at a time, so there should be at least as many as cores.
    Nothing has to be read again, and the node goes on where it was.

    \b
    Example:
      penstock rescale totals 16
    """
    from penstock.runtime.rescaling import rescale_node
    from penstock.runtime.running import running_alone

    status, found = find_node(data, app, node)
    folder = node_folder(data, status, found)
    with running_alone(folder.path.parent, status.app):
        before, rows = rescale_node(folder, buckets)
    click.echo(f"{node}: {plural(rows, 'row')} moved from {plural(before, 'bucket')} to {buckets}")
