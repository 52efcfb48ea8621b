stage 0:
     0  push rbx
     1  push rbp
     2  push r12
     4  push r13
     6  push r14
     8  push r15
     a  add rsp, 0FFFFFFFFFFFFFF98h
     e  mov [rsp+10h], rdx
    13  mov [rsp+18h], rcx
    18  mov rax, [rdi]
    1c  mov [rsp+20h], rax
    21  mov rax, [rdi+8]
    25  mov [rsp+28h], rax
    2a  mov rax, [rdi+10h]
    2e  mov [rsp+30h], rax
    33  mov rax, [rdi+18h]
    37  mov [rsp+38h], rax
    3c  mov rax, [rdi+20h]
    40  mov [rsp+40h], rax
    45  mov rax, [rsp+10h]
    4a  mov rcx, 0
    51  cmp rax, rcx
    54  cmovl rax, rcx
    58  mov [rsp], rax
    5d  mov rax, [rsp+18h]
    62  mov rcx, 1
    69  cmp rax, rcx
    6c  cmovg rax, rcx
    70  mov [rsp+8], rax
    75  jmp 0C5h
    7a  mov rax, [rsp]
    7f  xor edx, edx
    81  mov rcx, 1
    88  div rcx
    8b  mov [rsp+50h], rdx
    90  mov rdi, [rsp+28h]
    95  imul rax, [rsp+50h], 2Ch
    9e  add rdi, rax
    a1  mov rsi, [rsp+40h]
    a6  imul rax, [rsp+50h], 84h
    af  add rsi, rax
    b2  call 20Dh
    b7  mov rax, [rsp]
    bc  add rax, 1
    c0  mov [rsp], rax
    c5  mov rax, [rsp]
    ca  cmp rax, [rsp+8]
    cf  jl near 7Ah
    d5  add rsp, 68h
    d9  pop r15
    db  pop r14
    dd  pop r13
    df  pop r12
    e1  pop rbp
    e2  pop rbx
    e3  vzeroupper
    e6  ret
stage 1:
    e7  push rbx
    e8  push rbp
    e9  push r12
    eb  push r13
    ed  push r14
    ef  push r15
    f1  add rsp, 0FFFFFFFFFFFFFF88h
    f5  mov [rsp+10h], rdx
    fa  mov [rsp+18h], rcx
    ff  mov rax, [rdi]
   103  mov [rsp+20h], rax
   108  mov rax, [rdi+8]
   10c  mov [rsp+28h], rax
   111  mov rax, [rdi+10h]
   115  mov [rsp+30h], rax
   11a  mov rax, [rdi+18h]
   11e  mov [rsp+38h], rax
   123  mov rax, [rdi+20h]
   127  mov [rsp+40h], rax
   12c  mov rax, [rsp+10h]
   131  mov rcx, 0
   138  cmp rax, rcx
   13b  cmovl rax, rcx
   13f  mov [rsp], rax
   144  mov rax, [rsp+18h]
   149  mov rcx, 1
   150  cmp rax, rcx
   153  cmovg rax, rcx
   157  mov [rsp+8], rax
   15c  jmp 1EBh
   161  mov rax, [rsp]
   166  xor edx, edx
   168  mov rcx, 1
   16f  div rcx
   172  mov [rsp+58h], rdx
   177  xor edx, edx
   179  mov rcx, 1
   180  div rcx
   183  mov [rsp+50h], rdx
   188  mov rdi, [rsp+20h]
   18d  imul rax, [rsp+58h], 18h
   196  add rdi, rax
   199  mov rsi, [rsp+40h]
   19e  imul rax, [rsp+50h], 84h
   1a7  add rsi, rax
   1aa  mov rdx, [rsp+30h]
   1af  imul rax, [rsp+50h], 2Ch
   1b8  add rdx, rax
   1bb  mov rcx, [rsp+38h]
   1c0  imul rax, [rsp+58h], 58h
   1c9  add rcx, rax
   1cc  imul rax, [rsp+50h], 2Ch
   1d5  add rcx, rax
   1d8  call 24Bh
   1dd  mov rax, [rsp]
   1e2  add rax, 1
   1e6  mov [rsp], rax
   1eb  mov rax, [rsp]
   1f0  cmp rax, [rsp+8]
   1f5  jl near 161h
   1fb  add rsp, 78h
   1ff  pop r15
   201  pop r14
   203  pop r13
   205  pop r12
   207  pop rbp
   208  pop rbx
   209  vzeroupper
   20c  ret
   20d  mov eax, 7FFh
   212  kmovw k1, eax
   216  mov rdx, 3
   21d  vmovups zmm0{k1}{z}, [rdi]
   224  vmovups [rsi]{k1}, zmm0
   22b  add rdi, 2Ch
   22f  add rsi, 2Ch
   233  dec rdx
   236  jne near 21Dh
   23c  add rdi, 0FFFFFFFFFFFFFF7Ch
   243  add rsi, 0FFFFFFFFFFFFFF7Ch
   24a  ret
   24b  mov eax, 7FFh
   250  kmovw k1, eax
   254  vpxord zmm0, zmm0, zmm0
   25a  vpxord zmm1, zmm1, zmm1
   260  mov r8, 3
   267  vmovups zmm2{k1}{z}, [rsi]
   26e  vfmadd231ps zmm0, zmm2, [rdi]{1to16}
   275  vfmadd231ps zmm1, zmm2, [rdi+0Ch]{1to16}
   27c  prefetcht0 [rsi+84h]
   283  add rdi, 4
   287  add rsi, 2Ch
   28b  dec r8
   28e  jne near 267h
   294  add rdi, 0FFFFFFFFFFFFFFF4h
   298  add rsi, 0FFFFFFFFFFFFFF7Ch
   29f  vpxord zmm2, zmm2, zmm2
   2a5  vmovups zmm3{k1}{z}, [rdx]
   2ac  vaddps zmm4, zmm0, zmm3
   2b2  vmaxps zmm4, zmm2, zmm4
   2b8  vmovups [rcx]{k1}, zmm4
   2bf  vaddps zmm3, zmm1, zmm3
   2c5  vmaxps zmm2, zmm2, zmm3
   2cb  vmovups [rcx+2Ch]{k1}, zmm2
   2d5  ret
