/* What a process between two others does to AMQP frames that it passes on without looking into them: it writes its own
   channel number into each, and its own delivery tag into each basic.deliver. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static const uint8_t DELIVER[] = {0, 60, 0, 60};

/* Deals with the whole frames among `size` octets; returns how many octets those are. */
size_t relay(uint8_t *octets, size_t size, uint16_t channel, uint64_t *tag)
{
    size_t at = 0;
    while (size - at >= 8) {
        uint8_t *frame = octets + at;
        size_t length = (size_t)frame[3] << 24 | (size_t)frame[4] << 16 | (size_t)frame[5] << 8 | frame[6];
        if (size - at < length + 8)
            break;
        frame[1] = channel >> 8;
        frame[2] = channel & 0xFF;
        if (frame[0] == 1 && length >= 16 && memcmp(frame + 7, DELIVER, 4) == 0) {
            uint8_t *place = frame + 12 + frame[11];
            uint64_t number = ++*tag;
            if (place + 8 <= frame + 7 + length)
                for (int octet = 0; octet < 8; octet++)
                    place[octet] = number >> (56 - 8 * octet) & 0xFF;
        }
        at += length + 8;
    }
    return at;
}
