# The cluster's own trial: everybody reaches everybody; a node whose cable is cut, and later its power, is
# missed by the others and comes back as itself. Node 1 gives the orders.
fail() {
    echo "FAILED: $*"
    ip address show vec0
    ip neighbour
    exit 1
}
soon() {
    local until=$((SECONDS + 60))
    until reaches "$1"; do
        [ "$SECONDS" -lt "$until" ] || fail "node $NODE does not reach $1 within a minute"
    done
}
everybody() { for one in $ADDRESSES; do soon "$one"; done; }
alone() {
    for one in $ADDRESSES; do
        [ "$one" = "$ADDRESS" ] || ! reaches "$one" || fail "node $NODE reaches $one, which should be away"
    done
}
last=${ADDRESSES##* }

[ "$(hostname)" = "node-$NODE" ] || fail "its name is $(hostname)"
if [ "$BOOT" = 2 ]; then
    [ "$NODE" = "$NODES" ] || fail "node $NODE was started twice"
    [ "$(cat /root/kept)" = "$(cat /etc/machine-id)" ] || fail "its disk or its number is another one"
else
    cat /etc/machine-id >/root/kept
    sync
    meet up
    everybody
    # The cards of the others, each once: guests of one image must not be one machine.
    cards=$(ip neighbour show dev vec0 | grep -o '02:fa:4d:e1:00:..' | sort -u | wc -l)
    [ "$cards" = $((NODES - 1)) ] || fail "$cards cards of others are seen"
    meet everybody-was-reached
    [ "$NODE" != 1 ] || cut_cable "$NODES"
    meet cut
    if [ "$NODE" = "$NODES" ]; then
        alone
    else
        ! reaches "$last" || fail "node $NODE still reaches $last"
        soon "${ADDRESSES%% *}"
        echo "misses $last: its cable is cut"
    fi
    meet missed
    [ "$NODE" != 1 ] || join_cable "$NODES"
    meet joined
    everybody
    meet everybody-is-back
    if [ "$NODE" = "$NODES" ]; then
        # Its power goes while it sleeps here.
        sleep 300
        fail "it still has power"
    fi
    [ "$NODE" != 1 ] || power_off "$NODES"
    meet dark
    ! reaches "$last" || fail "node $NODE still reaches $last"
    echo "misses $last: it has no power"
    meet missed-again
    [ "$NODE" != 1 ] || power_on "$NODES"
fi
# In one order for all: a node that has just got its power counts from then on.
meet started
everybody
echo "reaches everybody"
meet end
