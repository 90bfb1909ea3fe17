from tests.support.raw_websocket import BINARY, TEXT


async def test_pair(relay):
    sender, listener = await relay.pair()
    await sender.send(TEXT, b"hello")
    assert (TEXT, b"hello") == await listener.read_message()
    await listener.send(BINARY, b"x" * 100000)
    assert (BINARY, b"x" * 100000) == await sender.read_message()
