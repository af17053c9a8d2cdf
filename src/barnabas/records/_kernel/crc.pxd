"""CRC-32C by the processor's own instruction, for short pieces: calling the library takes longer than the sum."""

from libc.stdint cimport uint8_t


cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>

    static int barnabas_has_native_crc(void) { return __builtin_cpu_supports("sse4.2"); }

    __attribute__((target("sse4.2")))
    static uint32_t barnabas_native_crc(const uint8_t* at, size_t size) {
        uint64_t sum = 0xFFFFFFFF, word;
        for (; size >= 8; at += 8, size -= 8) {
            memcpy(&word, at, 8);
            sum = _mm_crc32_u64(sum, word);
        }
        for (; size; at++, size--) sum = _mm_crc32_u8((uint32_t)sum, *at);
        return (uint32_t)sum ^ 0xFFFFFFFF;
    }
    #else
    static int barnabas_has_native_crc(void) { return 0; }
    static uint32_t barnabas_native_crc(const uint8_t* at, size_t size) { (void)at; (void)size; return 0; }
    #endif
    """
    bint has_native_crc "barnabas_has_native_crc"() noexcept nogil
    unsigned int native_crc "barnabas_native_crc"(const uint8_t* at, size_t size) noexcept nogil
